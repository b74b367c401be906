"""Shared parts of the chunkers of prose: paragraphs, and sections under headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from processors.chunking.packing.headers import one_line
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Block, Outline, Unit, one_by_one
from processors.chunking.packing.packer import Piece, pack
from processors.chunking.types import Chunk, Source

__all__ = ["Heading", "Ranks", "chunk_sections", "paragraph_rank"]

_SENTENCE_END = re.compile(r"[.!?:;][\"')\]*_`]*\s*$")
_LABEL_CHARACTERS = 400
_ITEM = re.compile(r"\s*([-*+•]|\d{1,3}[.)]|[a-z][.)]|\(\w{1,3}\))\s")


class Ranks:
    """Ranks of rows of prose: a cut before a row with a higher rank is better."""

    NEVER = 0
    LINE = 1
    SENTENCE = 2
    INDENTED = 3
    ITEM = 4
    PARAGRAPH = 5


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading whose section starts at ``row``; level 1 is the outermost.

    ``label`` replaces the text in the header of chunks. A section that is ``alone`` shares no chunk
    with its neighbours, and its text is the symbol of its chunks. ``lead``: see ``Unit``.
    """

    row: int
    level: int
    text: str
    label: str = ""
    alone: bool = False
    lead: str = ""


def paragraph_rank(lines: Lines, row: int) -> int:
    """Rank of a row of plain prose: paragraphs, then items, then sentences, then lines."""
    if lines.blank[row]:
        return Ranks.NEVER
    line = lines.texts[row]
    item = _ITEM.match(line) is not None
    if lines.blanks_before(row, 1):
        if line[0] in " \t":
            return Ranks.INDENTED
        return Ranks.ITEM if item else Ranks.PARAGRAPH
    if item:
        return Ranks.ITEM if line[0] not in " \t" else Ranks.INDENTED
    ended = row > 0 and _SENTENCE_END.search(lines.texts[row - 1]) is not None
    return Ranks.SENTENCE if ended else Ranks.LINE


def chunk_sections(
    source: Source,
    lines: Lines,
    headings: Sequence[Heading],
    rank: Callable[[int], int],
    limit_tokens: int,
    blocks: Sequence[Block] = (),
) -> list[Chunk]:
    """Cut by section. A chunk's heading path is the common heading path of its sections."""
    units = _sections(headings, 0, len(lines))
    outline = Outline(units, one_by_one(rank), blocks, prose=source.version > 1)
    packed = pack(source, lines, outline, limit_tokens)
    return [
        chunk._replace(heading_path=_path(piece), symbol=_symbol(piece)) for chunk, piece in packed
    ]


def _sections(headings: Sequence[Heading], start: int, end: int) -> list[Unit]:
    """Units of ``start..end``: the text before the first heading, then each outermost section."""
    units: list[Unit] = []
    first_row = headings[0].row if headings else end
    if first_row > start:
        units.append(Unit(start, first_row))
    position = 0
    while position < len(headings):
        following = _next_section(headings, position)
        last = headings[following].row if following < len(headings) else end
        units.append(_section(headings[position], headings[position + 1 : following], last))
        position = following
    return units


def _next_section(headings: Sequence[Heading], position: int) -> int:
    """Index of the next heading that is not below the one at ``position``."""
    level = headings[position].level
    following = position + 1
    while following < len(headings) and headings[following].level > level:
        following += 1
    return following


def _section(heading: Heading, inner: Sequence[Heading], end: int) -> Unit:
    text = one_line(heading.text)
    label = one_line(heading.label, _LABEL_CHARACTERS) if heading.label else text
    expand = partial(_sections, inner, heading.row, end) if inner else None
    lead = one_line(heading.lead, _LABEL_CHARACTERS)
    return Unit(heading.row, end, text, label, expand, heading.alone, lead)


def _symbol(piece: Piece) -> str | None:
    return next((unit.name for unit in (*piece.owners, *piece.inside) if unit.alone), None)


def _path(piece: Piece) -> tuple[str, ...]:
    units = (*piece.owners, *piece.inside) if len(piece.inside) == 1 else piece.owners
    return tuple(unit.name for unit in units)
