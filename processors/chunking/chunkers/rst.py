"""Chunker of reStructuredText: cuts by heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from processors.chunking.chunkers.prose import Heading, chunk_sections, paragraph_rank
from processors.chunking.packing.lines import Lines
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_rst"]

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+\s*$")
_SHORTEST_ADORNMENT = 3


def chunk_rst(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into sections; the order in which adornments first appear defines heading levels."""
    lines = Lines(source.text, count)
    headings = list(_headings(lines))
    return chunk_sections(source, lines, headings, partial(paragraph_rank, lines), limit_tokens)


def _headings(lines: Lines) -> Iterator[Heading]:
    levels: dict[tuple[str, bool], int] = {}
    for row in range(len(lines) - 1):
        if not _is_title(lines, row):
            continue
        mark = lines.texts[row + 1][0]
        overlined = row > 0 and _is_adornment(lines, row - 1, mark)
        level = levels.setdefault((mark, overlined), len(levels) + 1)
        yield Heading(row - overlined, level, lines.texts[row].strip())


def _is_title(lines: Lines, row: int) -> bool:
    """True for text over an adornment about as long, after a blank line or an overline."""
    title, underline = lines.texts[row].rstrip(), lines.texts[row + 1].rstrip()
    if lines.blank[row] or _ADORNMENT.match(title) or not _is_adornment(lines, row + 1):
        return False
    if len(underline) < min(len(title), _SHORTEST_ADORNMENT + 1):
        return False
    if row == 0 or lines.blank[row - 1]:
        return not title[0].isspace()
    return _is_adornment(lines, row - 1, underline[0])


def _is_adornment(lines: Lines, row: int, mark: str = "") -> bool:
    text = lines.texts[row].rstrip()
    if len(text) < _SHORTEST_ADORNMENT or not _ADORNMENT.match(text):
        return False
    return text.startswith(mark)
