"""Comparison of the HNSW indexes in the Postgres catalogue with those that queries rely on."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import asyncpg

from store.generations.catalog import Generation
from store.postgres.connection import connect
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = [
    "LEAST_DISTANCE",
    "IndexFinding",
    "VectorFinding",
    "drop_orphans",
    "forget_index",
    "index_findings",
    "indexes_by_name",
    "vector_findings",
]

_QUERIES = named("inspection")
_VECTORS = named("vectors")
_NAME = re.compile(r"embeddings_hnsw_(\d+)_(\d+)_(\d+)")
_BOUNDS = re.compile(r"(generation_id|model_id|chunk_id) [=<] '?(\d+)")
_LOCK_TIMEOUT = "3s"


@dataclass(frozen=True, slots=True)
class IndexFinding:
    """An index; ``kind`` is ``missing``, ``invalid``, ``bounds`` (they differ) or ``unused``."""

    name: str
    kind: str


async def index_findings(database: Database, generation: Generation) -> list[IndexFinding]:
    """Wrong vector indexes of one generation; empty while an index is being built.

    Raises:
        Unavailable: the server cannot be reached.
    """
    async with (
        database.connection() as connection,
        Lock.VECTOR_INDEX.holding(connection, generation.id) as is_held,
    ):
        return await _wrong_indexes(database, generation) if is_held else []


async def _wrong_indexes(database: Database, generation: Generation) -> list[IndexFinding]:
    async with database.scope(generation.project_id, None, generation.id) as connection:
        recorded = await connection.fetch(_QUERIES["recorded_indexes"], generation.id)
        rows = await connection.fetch(_QUERIES["vector_indexes"])
    existing = {row["name"]: row for row in rows if _generation_of(row["name"]) == generation.id}
    findings = [_compare(generation, row, existing.get(row["name"])) for row in recorded]
    unused = existing.keys() - {row["name"] for row in recorded}
    return [
        *(finding for finding in findings if finding is not None),
        *(IndexFinding(name, "unused") for name in sorted(unused)),
    ]


def _compare(
    generation: Generation, recorded: Mapping[str, object], index: Mapping[str, object] | None
) -> IndexFinding | None:
    name = str(recorded["name"])
    if index is None:
        return IndexFinding(name, "missing")
    if not index["valid"]:
        return IndexFinding(name, "invalid")
    bounds = dict(_BOUNDS.findall(str(index["predicate"])))
    expected = {
        "generation_id": str(generation.id),
        "model_id": str(recorded["model_id"]),
        "chunk_id": str(recorded["watermark"]),
    }
    return None if bounds == expected else IndexFinding(name, "bounds")


def _generation_of(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


async def forget_index(database: Database, generation: Generation, name: str) -> None:
    """Remove an index from the records that queries use, and drop it if it exists.

    Raises:
        Unavailable: the server cannot be reached, or a lock is held by another session.
    """
    async with database.scope(generation.project_id, None, generation.id) as connection:
        await connection.execute(_VECTORS["lock_timeout"], _LOCK_TIMEOUT)
        await connection.execute(_QUERIES["forget_index"], generation.id, name)
        await connection.execute(_VECTORS["drop_as_worker"], name)


async def indexes_by_name(connection: asyncpg.Connection) -> dict[str, int | None]:
    """Every vector index by name, with the generation id that its name contains."""
    rows = await connection.fetch(_QUERIES["vector_indexes"])
    return {row["name"]: _generation_of(row["name"]) for row in rows}


async def drop_orphans(owner_url: str, names: Collection[str]) -> None:
    """Drop orphaned indexes as the owner of the table, without blocking other sessions.

    Raises:
        Unavailable: the server cannot be reached.
    """
    connection = await connect(owner_url)
    try:
        for name in names:
            assert _NAME.fullmatch(name), "not an index of vectors"
            await connection.execute(_VECTORS["drop_concurrently"].format(name=name))
    finally:
        await connection.close()


LEAST_DISTANCE = 0.05
"""Two embeddings of one text differ by less, even from different batches or servers (L2 distance of
unit vectors in half precision)."""


_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class VectorFinding:
    """A chunk whose vector is ``missing``, ``foreign`` (another model or width) or ``changed``.

    A vector that is pending, or whose text its model rejects, is not missing.
    """

    kind: str
    agent: str
    uri: str
    ordinal: int
    chunk_id: int
    model: str | None
    content_hash: bytes


async def vector_findings(
    connection: asyncpg.Connection, generation: Generation
) -> list[VectorFinding]:
    """Compare every vector of a generation with its chunk, its model and the cache.

    The connection must be in a scope that sees every agent's rows.
    """
    recipe = generation.recipe
    rows = await connection.fetch(
        _QUERIES["vector_findings"].format(generation_id=int(generation.id)),
        generation.id,
        generation.project_id,
        recipe.model,
        json.dumps(dict(recipe.models)),
        LEAST_DISTANCE,
        timeout=_TIMEOUT_S,
    )
    return [VectorFinding(**row) for row in rows]
