"""Chunker of conversations: cuts by turn; a turn begins with ``Name: …`` at a line's start."""

from __future__ import annotations

import re

from processors.chunking.chunkers.blocks import blocks_of
from processors.chunking.chunkers.prose import paragraph_rank
from processors.chunking.chunkers.text import chunk_text
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Outline, Unit, one_by_one
from processors.chunking.packing.packer import pack
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_conversation"]

_TURN = re.compile(
    r"(?:\[[^\]]{1,40}\]\s*)?[*_#]{0,4}\s?"
    r"([A-Z@][\w.@-]*(?: [\w.()@-]+){0,3})[*_]{0,3}:[*_]{0,3}(?:\s|$)"
)
_FEWEST_TURNS = 2


def chunk_conversation(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into turns; short ones are merged, and parts of a long one have the speaker as header.

    A text with less than two turns is cut as plain text.
    """
    lines = Lines(source.text, count)
    units = _turns(lines)
    if len(units) < _FEWEST_TURNS:
        return chunk_text(source, limit_tokens, count)

    def rank(row: int) -> int:
        return paragraph_rank(lines, row)

    blocks = blocks_of(source, lines, markdown=False)
    outline = Outline(units, one_by_one(rank), blocks, prose=source.version > 1)
    packed = pack(source, lines, outline, limit_tokens)
    return [
        chunk._replace(symbol=piece.owners[0].name if piece.owners else None)
        for chunk, piece in packed
    ]


def _turns(lines: Lines) -> list[Unit]:
    turns = [(row, match) for row, line in enumerate(lines.texts) if (match := _TURN.match(line))]
    if not turns:
        return []
    ends = [row for row, _ in turns[1:]] + [len(lines)]
    before = [Unit(0, turns[0][0])] if turns[0][0] else []
    return before + [
        Unit(row, end, match[1], match[1]) for (row, match), end in zip(turns, ends, strict=True)
    ]
