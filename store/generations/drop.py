"""Dropping of a generation: its rows are deleted in batches, so that no other process waits."""

from __future__ import annotations

from collections.abc import AsyncIterator

from store.generations import catalog
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["begin_drop", "drop_rows", "forget"]

_QUERIES = named("generations")
_BATCH_ROWS = 5_000
_TABLES = (
    "keyword_postings",
    "keyword_segments",
    "keyword_words",
    "keyword_vocabulary",
    "vector_indexes",
    "document_collections",
    "pending_vectors",
    "refused_vectors",
    "chunk_contexts",
    "embeddings",
    "chunks",
    "documents",
    "collections",
)
"""In order of foreign keys: each table comes before the tables that it refers to."""


async def begin_drop(database: Database, generation: Generation) -> bool:
    """Mark a generation ``dropping``, so that it cannot be promoted; false if it is live."""
    async with database.scope(generation.project_id) as connection:
        return await catalog.mark_dropping(connection, generation)


async def drop_rows(database: Database, generation: Generation) -> AsyncIterator[int]:
    """Delete all rows of a ``dropping`` generation; yield the number deleted by each batch.

    Each batch is a transaction; an interrupted call can be repeated.

    Raises:
        Unavailable: the server cannot be reached.
    """
    scope = generation.project_id, EVERY_AGENT, generation.id
    for table in _TABLES:
        query = _QUERIES["drop_rows"].format(table=table, generation_id=int(generation.id))
        if table == "documents":  # a worker may delete them only in such a generation
            query = _QUERIES["drop_documents"]
        dropped = _BATCH_ROWS
        while dropped == _BATCH_ROWS:
            async with database.scope(*scope) as connection:
                dropped = await connection.fetchval(query, _BATCH_ROWS)
            yield dropped


async def forget(database: Database, generation: Generation) -> None:
    """Remove the record of a generation that has no rows any more."""
    async with database.scope(generation.project_id) as connection:
        await catalog.remove(connection, generation)
