"""Documents to write, and what the store made of them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import numpy as np

from store.database import EVERY_AGENT
from store.database import Database as WorkerDatabase
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = ["MODEL", "chunk_write", "contents_of", "document_write", "opened", "vector_of"]

MODEL = "test/model"
DIMENSIONS = 8


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[WorkerDatabase]:
    """The database as a worker opens it."""
    database = await WorkerDatabase.open(url)
    try:
        yield database
    finally:
        await database.close()


def vector_of(text: str, dimensions: int = DIMENSIONS) -> Vector:
    """A unit vector that depends on the text alone."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype(np.float16)


def chunk_write(ordinal: int, text: str, **fields: Any) -> ChunkWrite:
    """A chunk of one line, which stands at its ordinal."""
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
    """A change with one chunk for each text."""
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
    database: WorkerDatabase, project_id: int, agent: str | None = EVERY_AGENT
) -> dict[tuple[str, str], list[str]]:
    """Texts of the chunks of every living document, by agent and uri."""
    async with database.scope(project_id, agent) as connection:
        rows: list[asyncpg.Record] = await connection.fetch(
            "select d.agent, d.uri, array_remove(array_agg(c.content order by c.ordinal), null) t "
            "from documents d left join chunks c on c.document_id = d.id "
            "and c.project_id = d.project_id where not d.deleted group by 1, 2"
        )
    return {(row["agent"], row["uri"]): list(row["t"]) for row in rows}
