"""Reads one index within a snapshot, so that the data being compared is consistent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import asyncpg

from events.positions import LogPosition
from store.generations.catalog import Generation
from store.postgres.locks import LOCK_SPACE
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = [
    "first_handled",
    "is_being_replayed",
    "outcomes_of",
    "snapshot",
    "stuck_outbox",
]

_DATABASE = named("database")
_STANDINGS = named("standings")
_QUERIES = named("inspecting")
_PLACES_AT_ONCE = 20_000

"""Position and partition."""


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
        scope = str(generation.project_id), EVERY_AGENT, str(generation.id)
        await connection.execute(_DATABASE["enter_scope"], *scope)
        yield connection


async def outcomes_of(
    connection: asyncpg.Connection, project_id: int, log_positions: Collection[LogPosition]
) -> dict[LogPosition, str]:
    """Ledger outcomes of changes by log position; changes without an entry are absent."""
    outcomes: dict[LogPosition, str] = {}
    wanted = sorted(log_positions)
    for start in range(0, len(wanted), _PLACES_AT_ONCE):
        part = wanted[start : start + _PLACES_AT_ONCE]
        columns = [position for position, _ in part], [partition for _, partition in part]
        rows = await connection.fetch(_STANDINGS["outcomes_at"], project_id, *columns)
        outcomes |= {(row["position"], row["partition"]): row["outcome"] for row in rows}
    return outcomes


async def first_handled(connection: asyncpg.Connection, project_id: int) -> int | None:
    """The lowest position in the ledger. Returns None if the ledger is empty."""
    position: int | None = await connection.fetchval(_QUERIES["first_handled"], project_id)
    return position


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
        return bool(await connection.fetchval(_QUERIES["is_held"], LOCK_SPACE, project_id))
