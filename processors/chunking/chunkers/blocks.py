"""Fences and tables of Markdown, also where they stand in plain text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby

from processors.chunking.packing.headers import one_line
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Block
from processors.chunking.types import Source

__all__ = ["LONGEST_HEAD", "blocks_of"]

_OPENING = re.compile(r"(?P<indent>\s*)(?P<mark>`{3,100}|~{3,100})(?P<info>[^`]*)$")
_DASHES = re.compile(r"\s*:?-+:?\s*")
_DEEPEST_INDENT = 3
_MOST_INDENT = 100
_LONGEST_LABEL = 400
LONGEST_HEAD = 4000
"""Characters of the head of a table, or of a fence, that are shown again above its other parts."""


def blocks_of(source: Source, lines: Lines, first: int = 0, *, markdown: bool) -> Sequence[Block]:
    """Find the fences and tables of a text from row ``first`` on; version 1 keeps none together.

    A fence without an end goes up to the end of ``markdown``, as CommonMark says. In any other
    text, and indented by more than 3 columns, it is no fence; nor are tildes in another text, as
    they underline titles there.
    """
    if source.version == 1:
        return ()
    fences = list(_fences(lines.texts, first, markdown=markdown))
    return sorted([*fences, *_tables(lines.texts, first, fences)], key=lambda block: block.start)


def _fences(texts: Sequence[str], first: int, *, markdown: bool) -> Iterator[Block]:
    marked = [
        row for row, text in enumerate(texts) if ("```" in text or "~~~" in text) and row >= first
    ]
    unclosed: set[tuple[str, bool]] = set()
    position = 0
    while position < len(marked):
        row = marked[position]
        position += 1
        opening = _OPENING.match(texts[row])
        if opening is None:
            continue
        mark, is_deep = opening["mark"], _is_deep(texts[row])
        if (mark, is_deep) in unclosed:
            continue
        if mark[0] == "~" and not markdown:
            continue
        following = (marked[i] for i in range(position, len(marked)))
        # the end of a fence at the margin is none for a mark in indented code
        ends = (end for end in following if not is_deep or _is_deep(texts[end]))
        last = next((end for end in ends if _closes(texts[end], mark)), None)
        if last is None and (not markdown or is_deep):
            unclosed.add((mark, is_deep))  # nor does any later one like it have an end
            continue
        end = len(texts) if last is None else last + 1
        label = one_line(opening["info"].strip(), _LONGEST_LABEL)
        closing = opening["indent"][:_MOST_INDENT] + mark
        shown = texts[row] if len(texts[row]) <= LONGEST_HEAD else closing
        yield Block(row, end, 1, shown, closing, label, last is None)
        position = bisect_left(marked, end)


def _is_deep(text: str) -> bool:
    return len(text) - len(text.lstrip()) > _DEEPEST_INDENT


def _closes(text: str, mark: str) -> bool:
    text = text.strip()
    return text.startswith(mark) and not text.strip(mark[0])


def _tables(texts: Sequence[str], first: int, fences: Sequence[Block]) -> Iterator[Block]:
    piped = [row for row, text in enumerate(texts) if "|" in text and row >= first]
    if not piped:
        return
    fenced = {row for fence in fences for row in range(fence.start, fence.end)}
    rows = [row for row in piped if row not in fenced]
    for _, run in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
        run_rows = [row for _, row in run]
        table = _table(texts, run_rows[0], run_rows[-1] + 1)
        if table is not None:
            yield table


def _table(texts: Sequence[str], start: int, end: int) -> Block | None:
    """Return the table in a run of rows that contain ``|``, or None if there is none."""
    for row in range(start + 1, end):
        if _is_delimiter(texts[row]):
            head = "\n".join(texts[row - 1 : row + 1])
            label = one_line(texts[row - 1].strip().strip("|"), _LONGEST_LABEL)
            shown = head if len(head) <= LONGEST_HEAD else ""
            return Block(row - 1, end, 2, shown, label=label)
    if end - start > 1 and all(text.lstrip().startswith("|") for text in texts[start:end]):
        return Block(start, end)
    return None


def _is_delimiter(text: str) -> bool:
    """True for the row of dashes under the names of the columns."""
    if set(text) - set("|:- \t"):
        return False
    return all(_DASHES.fullmatch(cell) for cell in text.strip().strip("|").split("|"))
