"""Reads one index within a snapshot, so that the data being compared is consistent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from store.generations.catalog import Generation
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database, entering

__all__ = [
    "is_being_replayed",
    "snapshot",
    "stuck_outbox",
]

_QUERIES = named("inspection")


@asynccontextmanager
async def snapshot(database: Database, generation: Generation) -> AsyncIterator[asyncpg.Connection]:
    """Begin a snapshot transaction that sees one generation, with every agent's rows.

    Raises:
        Unavailable: the server cannot be reached, or the connection is lost.
    """
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await connection.execute(entering(generation.project_id, EVERY_AGENT, generation.id))
        yield connection


async def stuck_outbox(
    connection: asyncpg.Connection, project_id: int, older_than_s: float
) -> list[str]:
    """Ids of events that have been in the outbox for longer than that, oldest first."""
    rows = await connection.fetch(_QUERIES["stuck_outbox"], project_id, older_than_s)
    return [row["event_id"] for row in rows]


async def is_being_replayed(database: Database, project_id: int) -> bool:
    """Return whether a process holds the project's replay lock, without acquiring it.

    Raises:
        Unavailable: the server cannot be reached.
    """
    async with database.connection() as connection:
        return await Lock.REPLAY.is_held(connection, project_id)
