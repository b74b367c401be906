"""Decoding of a file: bytes to text, or a reason why they are not text."""

from __future__ import annotations

import codecs
import re

from sources.types import Skip

__all__ = ["to_text"]

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COOKIE = re.compile(rb"^[ \t\f]*(?:#|//|/\*|;|%|--|<!--).*?coding[:=][ \t]*([-\w.]+)")
_COOKIE_LINES = 2


def to_text(raw: bytes) -> str | Skip:
    """Text of a file, or the reason to skip it.

    Decodes UTF-16 with a byte order mark and UTF-8 with or without, else the encoding that a
    comment in the first two lines declares (PEP 263, also in the style of Emacs). Nothing is
    guessed: text in another encoding without a declaration is skipped.
    """
    text = _decoded(raw)
    if text is None:
        return Skip.BINARY if b"\0" in raw else Skip.ENCODING
    if "\0" in text:
        return Skip.BINARY
    return text if text.strip() else Skip.EMPTY


def _decoded(raw: bytes) -> str | None:
    encoding = "utf-16" if raw.startswith(_UTF16) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return _by_declaration(raw)


def _by_declaration(raw: bytes) -> str | None:
    matches = map(_COOKIE.match, raw[:4096].splitlines()[:_COOKIE_LINES])
    declared = next((match[1] for match in matches if match), None)
    if declared is None:
        return None
    try:
        text = raw.decode(declared.decode("ascii"))
        text.encode()
    except (LookupError, ValueError):
        return None
    return text
