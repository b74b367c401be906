"""Vectors: those of living chunks, and a cache of all that a model was ever paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from store.connecting import encode_vector
from store.named_queries import named
from store.types import Vector

__all__ = ["Embedding", "add", "cached"]

_QUERIES = named("embeddings")


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one chunk."""

    chunk_id: int
    model_id: int
    content_hash: bytes
    vector: Vector


async def cached(
    connection: asyncpg.Connection, project_id: int, model: str, hashes: Sequence[bytes]
) -> dict[bytes, Vector]:
    """Known vectors by content hash."""
    rows = await connection.fetch(_QUERIES["cached_vectors"], project_id, model, hashes)
    return {row["content_hash"]: row["embedding"] for row in rows}


async def add(
    connection: asyncpg.Connection,
    project_id: int,
    generation_id: int,
    agent: str,
    rows: Sequence[Embedding],
) -> None:
    """Give new chunks their vectors, and remember the vectors by content hash."""
    await connection.execute(
        _QUERIES["add_embeddings"],
        project_id,
        generation_id,
        agent,
        [row.chunk_id for row in rows],
        [row.model_id for row in rows],
        [row.content_hash for row in rows],
        [encode_vector(row.vector) for row in rows],
    )
