"""Vectors of existing chunks, and a cache of every vector that a model ever computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
from pgvector import HalfVector

from store.postgres.named_queries import named
from store.types import Vector

__all__ = ["Embedding", "add", "add_cached", "cache_vectors", "cached", "known_hashes"]

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
    """Cached vectors by content hash."""
    rows = await connection.fetch(_QUERIES["cached_vectors"], project_id, model, hashes)
    return {row["content_hash"]: row["embedding"].to_numpy() for row in rows}


async def known_hashes(
    connection: asyncpg.Connection, project_id: int, model: str, hashes: Sequence[bytes]
) -> set[bytes]:
    """Return the content hashes that have a cached vector of the model, without the vectors."""
    rows = await connection.fetch(_QUERIES["known_hashes"], project_id, model, hashes)
    return {row["content_hash"] for row in rows}


async def cache_vectors(
    connection: asyncpg.Connection,
    project_id: int,
    model_id: int,
    vectors: Mapping[bytes, Vector],
) -> None:
    """Cache vectors by content hash; vectors that are already cached stay unchanged."""
    hashes = sorted(vectors)
    halves = [HalfVector(vectors[content_hash]) for content_hash in hashes]
    await connection.execute(_QUERIES["cache_vectors"], project_id, model_id, hashes, halves)


async def add(
    connection: asyncpg.Connection,
    project_id: int,
    generation_id: int,
    agent: str,
    rows: Sequence[Embedding],
) -> None:
    """Store the vectors of new chunks, and cache the vectors by content hash."""
    await connection.execute(
        _QUERIES["add_embeddings"],
        project_id,
        generation_id,
        agent,
        [row.chunk_id for row in rows],
        [row.model_id for row in rows],
        [row.content_hash for row in rows],
        [HalfVector(row.vector) for row in rows],
    )


async def add_cached(
    connection: asyncpg.Connection, project_id: int, generation_id: int, chunk_ids: Sequence[int]
) -> set[int]:
    """Give chunks the cached vectors of their texts; return the ids of those that have one."""
    rows = await connection.fetch(_QUERIES["add_cached"], project_id, generation_id, chunk_ids)
    return {row["id"] for row in rows}
