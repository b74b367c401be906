"""Conversion of file names to uris of documents."""

from __future__ import annotations

import os

__all__ = ["to_shown", "to_uri"]

_LONGEST_BYTES = 2048
"""Longest uri of an event."""


def to_uri(path: bytes) -> str | None:
    """Path as text. Returns None if it is not UTF-8, or too long for a uri."""
    try:
        uri = path.decode()
    except UnicodeDecodeError:
        return None
    return uri if len(path) <= _LONGEST_BYTES else None


def to_shown(path: str | bytes) -> str:
    """Path as printable text, even if it is not UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")
