"""Names of files as uris of documents."""

from __future__ import annotations

__all__ = ["to_uri"]

_LONGEST_BYTES = 2048
"""As events have it."""


def to_uri(path: bytes) -> str | None:
    """The path as text, or None where it is not UTF-8 or too long for a uri."""
    try:
        uri = path.decode()
    except UnicodeDecodeError:
        return None
    return uri if len(path) <= _LONGEST_BYTES else None
