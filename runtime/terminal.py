"""Escaping of untrusted text for a terminal, a log or a pipe."""

from __future__ import annotations

import re

__all__ = ["escaped", "on_one_line", "printable"]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, and characters that change the direction of text."""


def printable(text: str) -> str:
    """Replace characters that control a terminal, such as escape sequences and carriage returns."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def on_one_line(name: str) -> str:
    """Replace characters that control a terminal, and write line breaks and tabs as escapes.

    So a name of a document can't end its line and begin another.
    """
    return printable(name.replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r"))


def escaped(json: str) -> str:
    """Return the same JSON with an escape for each character that controls a terminal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json)
