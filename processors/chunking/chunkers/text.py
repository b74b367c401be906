"""Chunker of plain text: cuts by paragraph, then by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from processors.chunking.chunkers.blocks import blocks_of
from processors.chunking.chunkers.prose import paragraph_rank
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Block, Outline, Unit, one_by_one
from processors.chunking.packing.packer import pack
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_text"]


def chunk_text(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into paragraphs: short ones are merged, long ones cut at items, sentences or lines."""
    lines = Lines(source.text, count)

    def rank(row: int) -> int:
        return paragraph_rank(lines, row)

    blocks = blocks_of(source, lines, markdown=False)
    units = _paragraphs(lines, blocks)
    outline = Outline(units, one_by_one(rank), blocks, prose=source.version > 1)
    return [chunk for chunk, _ in pack(source, lines, outline, limit_tokens)]


def _paragraphs(lines: Lines, blocks: Sequence[Block]) -> list[Unit]:
    inside = {row for block in blocks for row in range(block.start + 1, block.end)}
    starts = [
        row
        for row in range(1, len(lines))
        if lines.blanks_before(row, 1) and not lines.blank[row] and row not in inside
    ]
    edges = [0, *starts, len(lines)]
    return [Unit(start, end) for start, end in pairwise(edges)]
