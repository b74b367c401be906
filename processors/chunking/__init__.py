"""Chunking of documents, with one chunker per kind of content."""

from __future__ import annotations

from processors.chunking.registry import CHUNKERS, Chunking, cut
from processors.chunking.types import (
    CHUNKING_VERSION,
    Boundaries,
    Chunk,
    Chunker,
    CountTokens,
    Cut,
    Source,
)

__all__ = [
    "CHUNKERS",
    "CHUNKING_VERSION",
    "Boundaries",
    "Chunk",
    "Chunker",
    "Chunking",
    "CountTokens",
    "Cut",
    "Source",
    "cut",
]
