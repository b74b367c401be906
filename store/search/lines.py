"""Lines of exact search: their places, and the runs of those that are shown together."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from runtime.errors import UsageError

__all__ = [
    "CLOSE",
    "LAST_LINE",
    "LONGEST_LINE",
    "MOST_MARKS",
    "OPEN",
    "Line",
    "MarkedLine",
    "Place",
    "cut",
    "marked_lines",
    "read_marks",
    "runs_of",
]

OPEN, CLOSE = "\ufdd0", "\ufdd1"
"""Marks of a match. They are noncharacters of Unicode: no text that is exchanged has them."""

LAST_LINE = 2**31 - 1
"""Number of a line that follows all lines of a document."""

MOST_MARKS = 50
"""Most matches of a passage that have a span, besides the first one of each line.

A span takes as long in Python as a line, and an expression may match at each character.
"""

_MOST_LINES = 20
"""Most matching lines of a passage."""

LONGEST_LINE = 2_000
"""Characters of a line that are shown."""


class Place(NamedTuple):
    """Line of a document, in the order of a search. Agent '' is that of shared documents."""

    uri: str = ""
    agent: str = ""
    line: int = 0

    def token(self) -> str:
        """Text that ``of_token`` reads."""
        return urlsafe_b64encode(json.dumps(self, ensure_ascii=False).encode()).decode().rstrip("=")

    @classmethod
    def of_token(cls, token: str) -> Place:
        """Inverse of ``token``.

        Raises:
            UsageError: the text is not a token.
        """
        try:
            uri, agent, line = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            place = cls(str(uri), str(agent), int(line))
            place.uri.encode()
        except (ValueError, TypeError):
            place = None
        if place is None or "\0" in place.uri + place.agent or not 0 <= place.line <= LAST_LINE:
            raise UsageError(
                "`after` is not a position in the results", "use `next` of the answer before"
            )
        return place


class Line(NamedTuple):
    """A line. ``spans``: characters from and to which it matches; None if it does not match.

    ``unmarked``: number of its matches without a span. Matches of no character are not counted.
    """

    number: int
    text: str
    spans: tuple[tuple[int, int], ...] | None = None
    unmarked: int = 0


class MarkedLine(NamedTuple):
    """A line that matches, with its marks, and the chunk that its text begins in."""

    chunk_id: int
    number: int
    text: str


def marked_lines(text: str, start_line: int, chunk_id: int) -> Iterator[MarkedLine]:
    """The lines with marks of a text."""
    for number, line in enumerate(text.split("\n"), start_line):
        if OPEN in line:
            yield MarkedLine(chunk_id, number, line)


def runs_of(lines: Iterable[MarkedLine], context: int) -> Iterator[list[MarkedLine]]:
    """Divide matching lines into runs: lines whose context touches that of the next one."""
    run: list[MarkedLine] = []
    for line in lines:
        is_apart = not context or (run and line.number - run[-1].number > 2 * context + 1)
        if run and (is_apart or len(run) == _MOST_LINES):
            yield run
            run = []
        run.append(line)
    if run:
        yield run


def read_marks(run: Sequence[MarkedLine]) -> Iterator[Line]:
    """Read the marks of the lines of a passage, up to ``MOST_MARKS``, and leave them out."""
    left = MOST_MARKS
    for line in run:
        read = _line_of(line, max(1, left))
        left -= len(read.spans or ())
        yield read


def _line_of(line: MarkedLine, most: int) -> Line:
    """Read the marks of a line. Of a long one, only what is around its first match is shown."""
    marked = line.text.replace(OPEN + CLOSE, "")
    before, *parts = marked.split(OPEN, most)
    text = marked.replace(OPEN, "").replace(CLOSE, "")
    is_long = bool(parts) and len(text) > LONGEST_LINE
    begin = max(0, len(before) - LONGEST_LINE // 4) if is_long else 0
    shown = text[begin : begin + LONGEST_LINE]
    spans = tuple(_spans(parts, len(before) - begin, len(shown)))
    return Line(line.number, shown, spans, marked.count(OPEN) - len(spans))


def _spans(parts: Sequence[str], begin: int, length: int) -> Iterator[tuple[int, int]]:
    """Spans of the matches at the beginning of each part, the first of which is at ``begin``."""
    for part in parts:
        if begin >= length:
            return
        end = begin + len(part.partition(CLOSE)[0])
        yield begin, min(end, length)
        begin += len(part) - 1


def cut(number: int, text: str) -> Line:
    """Line that does not match. Most of a long one is left out."""
    return Line(number, text[:LONGEST_LINE])
