"""Dropping a generation: its rows go in batches, so that nobody waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from store import generations
from store.database import EVERY_AGENT, Database
from store.generations import Generation
from store.named_queries import named

__all__ = ["drop_rows", "forget", "let_go"]

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
    "embeddings",
    "chunks",
    "documents",
    "collections",
)
"""Each before those that it refers to."""


async def let_go(database: Database, generation: Generation) -> bool:
    """Mark it ``dropping``, so that it can't be switched to; false: it is live by now."""
    async with database.scope(generation.project_id) as connection:
        return await generations.mark_dropping(connection, generation)


async def drop_rows(database: Database, generation: Generation) -> AsyncIterator[int]:
    """Delete all rows of a generation that is ``dropping``; how many went, batch by batch.

    Each batch is a transaction; what is interrupted can be begun again.

    Raises:
        Unavailable: the server can't be reached.
    """
    place = generation.project_id, EVERY_AGENT, generation.id
    for table in _TABLES:
        query = _QUERIES["drop_rows"].format(table=table)
        dropped = _BATCH_ROWS
        while dropped == _BATCH_ROWS:
            async with database.scope(*place) as connection:
                dropped = await connection.fetchval(query, generation.id, _BATCH_ROWS)
            yield dropped


async def forget(database: Database, generation: Generation) -> None:
    """Remove the generation itself, which has no rows any more."""
    async with database.scope(generation.project_id) as connection:
        await generations.remove(connection, generation)
