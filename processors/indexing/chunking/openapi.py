"""Chunker of OpenAPI descriptions: cuts YAML or JSON by indentation to keep operations whole."""

from __future__ import annotations

from processors.indexing.chunking.code import by_indentation
from processors.indexing.chunking.lines import Lines
from processors.indexing.chunking.outline import Outline, Unit
from processors.indexing.chunking.packing import pack
from processors.indexing.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_openapi"]


def chunk_openapi(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into runs of entries of the outermost level that fits."""
    lines = Lines(source.content, count)
    outline = Outline([Unit(0, len(lines))], by_indentation(lines))
    return [chunk for chunk, _ in pack(source, lines, outline, limit_tokens)]
