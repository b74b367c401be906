"""Cuts documents into chunks, each kind of content in its own way."""

from __future__ import annotations

from processors.indexing.chunking.registry import CHUNKERS, chunk
from processors.indexing.chunking.types import Chunk, Chunker, CountTokens, Source

__all__ = ["CHUNKERS", "CHUNKING_VERSION", "Chunk", "Chunker", "CountTokens", "Source", "chunk"]

CHUNKING_VERSION = 1
"""Goes up when the same document would be cut otherwise."""
