"""Documents to write, and their stored contents."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import numpy as np

from store.generations.catalog import Generation, Recipe
from store.postgres.locks import Lock
from store.postgres.pool import EVERY_AGENT
from store.postgres.pool import Database as WorkerDatabase
from store.store import Store
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = [
    "MODEL",
    "RECIPE",
    "add_generation",
    "chunk_write",
    "contents_of",
    "document_write",
    "opened",
    "switch",
    "vector_of",
]

MODEL = "test/model"
RECIPE = Recipe(MODEL)
DIMENSIONS = 8


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[WorkerDatabase]:
    """Database as a worker opens it."""
    database = await WorkerDatabase.open(url)
    try:
        yield database
    finally:
        await database.close()


def vector_of(text: str, dimensions: int = DIMENSIONS) -> Vector:
    """Unit vector that depends on the text only."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype(np.float16)


def chunk_write(ordinal: int, text: str, **fields: Any) -> ChunkWrite:
    """Chunk of one line, at the line of its ordinal."""
    values: dict[str, Any] = {
        "start_line": ordinal + 1,
        "end_line": ordinal + 1,
        "content_hash": hashlib.sha256(text.encode()).digest(),
        "tokens": len(text.split()),
        "model": MODEL,
        "vector": vector_of(text),
    }
    return ChunkWrite(ordinal=ordinal, content=text, **values | fields)


def document_write(
    uri: str, position: int, texts: Sequence[str] = (), **fields: Any
) -> DocumentWrite:
    """Change with one chunk for each text."""
    values: dict[str, Any] = {
        "event_id": f"event-{position}",
        "project": "alpha",
        "agent": None,
        "change": "upsert",
        "partition": 0,
        "published_at": datetime.now(UTC),
        "chunks": tuple(chunk_write(ordinal, text) for ordinal, text in enumerate(texts)),
    }
    return DocumentWrite(uri=uri, position=position, **values | fields)


async def contents_of(
    database: WorkerDatabase, generation: Generation, agent: str | None = EVERY_AGENT
) -> dict[tuple[str, str], list[str]]:
    """Texts of the chunks of every existing document, by agent and uri."""
    async with database.scope(generation.project_id, agent, generation.id) as connection:
        rows: list[asyncpg.Record] = await connection.fetch(
            "select d.agent, d.uri, array_remove(array_agg(c.content order by c.ordinal), null) t "
            "from documents d left join chunks c on c.document_id = d.id "
            "and c.generation_id = d.generation_id where not d.deleted group by 1, 2"
        )
    return {(row["agent"], row["uri"]): list(row["t"]) for row in rows}


async def add_generation(
    database: WorkerDatabase, store: Store, project: str, recipe: Recipe = RECIPE
) -> Generation:
    """Add an empty generation beside the live one, in the state building."""
    live = await store.generation(project)
    async with database.scope(live.project_id) as connection:
        await connection.execute(
            "insert into generations (project_id, state, model, chunking, tokens) "
            "values ($1, 'building', $2, $3, $4)",
            live.project_id,
            recipe.model,
            recipe.chunking,
            recipe.tokens,
        )
    *_, newest = await store.generations(project)
    return newest


async def switch(database: WorkerDatabase, generation: Generation) -> None:
    """Make a generation the live one, as a replay does once it has caught up."""
    async with database.scope(generation.project_id) as connection:
        await connection.execute(
            "select pg_advisory_xact_lock($1, $2)", Lock.SWITCH, generation.project_id
        )
        await connection.execute("update generations set state = 'former' where state = 'live'")
        await connection.execute(
            "update generations set state = 'live', switched_at = now() where id = $1",
            generation.id,
        )
