"""Chunker of plain text: cuts by paragraph, then by sentence."""

from __future__ import annotations

from itertools import pairwise

from processors.chunking.chunkers.prose import paragraph_rank
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Outline, Unit, one_by_one
from processors.chunking.packing.packer import pack
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_text"]


def chunk_text(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into paragraphs: short ones are merged, long ones cut at items, sentences or lines."""
    lines = Lines(source.text, count)

    def rank(row: int) -> int:
        return paragraph_rank(lines, row)

    outline = Outline(_paragraphs(lines), one_by_one(rank))
    return [chunk for chunk, _ in pack(source, lines, outline, limit_tokens)]


def _paragraphs(lines: Lines) -> list[Unit]:
    starts = [
        row for row in range(1, len(lines)) if lines.blanks_before(row, 1) and not lines.blank[row]
    ]
    edges = [0, *starts, len(lines)]
    return [Unit(start, end) for start, end in pairwise(edges)]
