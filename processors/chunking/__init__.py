"""Chunking of documents, with one chunker per kind of content."""

from __future__ import annotations

from processors.chunking.registry import CHUNKERS, CHUNKING_VERSION, Chunking, cut
from processors.chunking.types import Chunk, Chunker, CountTokens, Cut, Source

__all__ = [
    "CHUNKERS",
    "CHUNKING_VERSION",
    "Chunk",
    "Chunker",
    "Chunking",
    "CountTokens",
    "Cut",
    "Source",
    "cut",
]
