"""Registry of extractors."""

from __future__ import annotations

from content.rendition import Rendition

__all__ = ["extract", "is_rendered"]


def is_rendered(kind: str) -> bool:
    """Return whether documents of this kind are rendered before they are cut."""
    return kind == ""


def extract(kind: str, raw: bytes) -> Rendition:
    """Render the bytes of a document of this kind."""
    raise NotImplementedError(f"{kind}: {len(raw)} bytes")
