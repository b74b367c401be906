"""The switch of a project from one generation to another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from runtime.errors import Unavailable
from store.generations.catalog import Generation
from store.postgres.connection import WriteConflict
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["GenerationMoved", "exclusive", "switch"]

LOCK_WAIT_MS = 500
"""A switch that waits for the lock blocks new writers too, so it gives up early and tries again."""

IDLE_LIMIT_MS = 10_000
"""The server ends a switch whose process has stopped after this time, which unblocks writers."""

_QUERIES = named("generations")


class GenerationMoved(Unavailable):
    """Changes were prepared for a generation that is not live any more: prepare them again."""


@asynccontextmanager
async def exclusive(database: Database, project_id: int) -> AsyncIterator[asyncpg.Connection]:
    """Begin a transaction that excludes the writers of a project; queries are not affected.

    It begins when the in-flight writers are done. It commits to disk at the end of the block.

    Raises:
        WriteConflict: writers held the lock for ``LOCK_WAIT_MS``; nothing has changed.
        Unavailable: the server cannot be reached, or the block left the connection idle for longer
            than ``IDLE_LIMIT_MS``; nothing has changed, unless the commit itself was interrupted.
    """
    async with database.scope(project_id) as connection:
        await connection.execute(
            _QUERIES["prepare_switch"], f"{LOCK_WAIT_MS}ms", f"{IDLE_LIMIT_MS}ms"
        )
        await Lock.SWITCH.acquire(connection, project_id)
        yield connection


async def switch(connection: asyncpg.Connection, live: Generation, chosen: Generation) -> None:
    """Make ``chosen`` the live generation instead of ``live``, inside ``exclusive``.

    Raises:
        WriteConflict: the state of one of them has changed.
    """
    for query, generation in (("retire_live", live), ("make_live", chosen)):
        status = await connection.execute(_QUERIES[query], generation.project_id, generation.id)
        if status != "UPDATE 1":
            raise WriteConflict(
                f"generation {generation.id} was switched or dropped by another process"
            )
