"""Chunking of documents, with one chunker per kind of content."""

from __future__ import annotations

from processors.indexing.chunking.registry import CHUNKERS, chunk
from processors.indexing.chunking.types import Chunk, Chunker, CountTokens, Source
from processors.indexing.chunking.versions import CHUNKING_VERSION, Chunking

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
