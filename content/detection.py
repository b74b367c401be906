"""Detection of the kind and the language of a document, and decoding of text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Detection", "decode", "detect"]


@dataclass(frozen=True, slots=True)
class Detection:
    """Kind of a document, the grammar that fits if it is code, and contradictions on the way."""

    kind: str
    language: str | None = None
    warnings: tuple[str, ...] = ()


def detect(uri: str, media_type: str | None, raw: bytes, kind: str | None = None) -> Detection:
    """Detect the kind of a document."""
    from processors.chunking.registry import kind_of, language_of  # noqa: PLC0415

    text = decode(raw)
    language = language_of(uri, media_type, text)
    return Detection(kind or kind_of(uri, media_type, text), language)


def decode(raw: bytes) -> str:
    """Decode UTF-8."""
    return raw.decode()


def has_binary_name(uri: str) -> bool:
    """Return whether a document is not text by its name."""
    return uri.endswith(".pdf")


def is_known_binary(uri: str, head: bytes) -> bool:
    """Return whether a source may publish a file that is not text in UTF-8."""
    return has_binary_name(uri) and bool(head)
