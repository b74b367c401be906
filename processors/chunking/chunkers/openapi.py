"""Chunker of OpenAPI descriptions: cuts YAML or JSON by indentation to keep operations whole."""

from __future__ import annotations

from processors.chunking.chunkers.code import by_indentation
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Outline, Unit
from processors.chunking.packing.packer import pack
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_openapi"]


def chunk_openapi(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into runs of entries of the outermost level that fits."""
    lines = Lines(source.text, count)
    outline = Outline([Unit(0, len(lines))], by_indentation(lines))
    return [chunk for chunk, _ in pack(source, lines, outline, limit_tokens)]
