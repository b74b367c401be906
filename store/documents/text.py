"""Text of a document, joined from its chunks.

Chunks leave out blank lines between them; line numbers give their places. A chunk that begins on
the line on which the previous one ends continues that line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["TextPart", "ending_of", "joined_lines"]

_MOST_LINE_ENDS = 8


class TextPart(NamedTuple):
    """Content of a chunk; lines count from 1, both ends included."""

    start_line: int
    end_line: int
    content: str


def joined_lines(parts: Iterable[TextPart], first: int) -> list[str]:
    """Lines from ``first`` to the end of the last part; lines in no part are empty.

    ``parts`` are in the order of the text, and each ends at ``first`` or later.
    """
    lines: list[str] = []
    start = first
    previous: TextPart | None = None
    for part in parts:
        rows = part.content.split("\n")
        if previous is None:
            start = min(first, part.start_line)
        if previous is not None and previous.end_line == part.start_line:
            lines[-1] += rows[0]
            lines += rows[1:]
        else:
            lines += [""] * (part.start_line - start - len(lines)) + rows
        previous = part
    return lines[first - start :]


def ending_of(text: str, content_hash: str) -> str | None:
    """Line ends that follow ``text`` in the document with this SHA-256 (hex).

    Returns None if the document is another text: a blank line between chunks has spaces, or the
    document has carriage returns.
    """
    digest = hashlib.sha256(text.encode())
    for count in range(_MOST_LINE_ENDS):
        if digest.hexdigest() == content_hash:
            return "\n" * count
        digest.update(b"\n")
    return None
