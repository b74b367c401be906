"""Lines of exact search: their places, and the runs of those that are shown together."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runtime.errors import UsageError

__all__ = ["CLOSE", "LAST_LINE", "OPEN", "Line", "Place", "cut", "matching_lines", "runs_of"]

OPEN, CLOSE = "\ufdd0", "\ufdd1"
"""Marks of a match. They are noncharacters of Unicode: no text that is exchanged has them."""

LAST_LINE = 2**31 - 1
"""Number of a line that follows all lines of a document."""

_MOST_LINES = 20
"""Most matching lines of a passage."""

_LONGEST_LINE = 2_000
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
    """A line. ``spans``: characters from and to which it matches; None if it does not match."""

    number: int
    text: str
    spans: tuple[tuple[int, int], ...] | None


def runs_of(lines: Sequence[tuple[int, Line]], context: int) -> Iterator[list[tuple[int, Line]]]:
    """Divide matching lines into runs: lines whose context touches that of the next one."""
    run: list[tuple[int, Line]] = []
    for chunk_id, line in lines:
        is_apart = not context or (run and line.number - run[-1][1].number > 2 * context + 1)
        if run and (is_apart or len(run) == _MOST_LINES):
            yield run
            run = []
        run.append((chunk_id, line))
    yield run


def matching_lines(text: str, start_line: int) -> Iterator[Line]:
    """Read the lines with marks, and leave the marks out."""
    for number, line in enumerate(text.split("\n"), start_line):
        if OPEN in line:
            before, *parts = line.split(OPEN)
            plain, spans = before, []
            for part in parts:
                match, _, rest = part.partition(CLOSE)
                if match:
                    spans.append((len(plain), len(plain) + len(match)))
                plain += match + rest
            yield cut(Line(number, plain, tuple(spans)))


def cut(line: Line) -> Line:
    """Leave out most of a long line: it keeps what is around its first match."""
    if len(line.text) <= _LONGEST_LINE:
        return line
    begin = max(0, line.spans[0][0] - _LONGEST_LINE // 4) if line.spans else 0
    text = line.text[begin : begin + _LONGEST_LINE]
    if line.spans is None:
        return Line(line.number, text, None)
    spans = ((start - begin, min(end - begin, len(text))) for start, end in line.spans)
    return Line(line.number, text, tuple(span for span in spans if span[0] < len(text)))
