"""Chunking of documents, with one chunker per kind of content."""

from __future__ import annotations

from processors.chunking.registry import CHUNKERS, CHUNKING_VERSION, Chunking, chunk
from processors.chunking.types import Chunk, Chunker, CountTokens, Source

__all__ = [
    "CHUNKERS",
    "CHUNKING_VERSION",
    "Chunk",
    "Chunker",
    "Chunking",
    "CountTokens",
    "Source",
    "chunk",
]
