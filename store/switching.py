"""The switch of a project from one generation to another, and how writers keep clear of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from runtime.errors import Unavailable
from store.connecting import WriteConflict
from store.database import Database
from store.generations import Generation
from store.named_queries import named

__all__ = ["SWITCH", "GenerationMoved", "exclusive", "switch", "switch_lock_shared"]

SWITCH = 0x48445357
"""Space of the advisory locks that a switch takes, by project."""

LOCK_WAIT_MS = 500
"""A switch that waits for the lock makes new writers wait too: rather give up and come again."""

IDLE_LIMIT_MS = 10_000
"""A switch whose process has stopped ends after this, and writers go on."""

_QUERIES = named("switching")
_GENERATIONS = named("generations")


class GenerationMoved(Unavailable):
    """Changes were prepared for a generation that isn't live any more: prepare them again."""


async def switch_lock_shared(connection: asyncpg.Connection, project_id: int) -> None:
    """Keep the project from being switched until the transaction ends.

    Waits for a switch that is going on; the statements after this one see what it did. Writers
    don't wait for each other.
    """
    await connection.execute(_QUERIES["lock_shared"], SWITCH, project_id)


@asynccontextmanager
async def exclusive(database: Database, project_id: int) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that keeps the writers of a project out; questions don't notice.

    It begins when the writers in flight are done. It commits at the end of the block, on disk.

    Raises:
        WriteConflict: writers were in the way for ``LOCK_WAIT_MS``; nothing has happened.
        Unavailable: the server can't be reached, or the block left the connection idle for longer
            than ``IDLE_LIMIT_MS``; nothing has happened, unless the commit itself was interrupted.
    """
    async with database.scope(project_id) as connection:
        await connection.execute(
            _QUERIES["prepare_switch"], f"{LOCK_WAIT_MS}ms", f"{IDLE_LIMIT_MS}ms"
        )
        await connection.execute(_QUERIES["lock_exclusive"], SWITCH, project_id)
        yield connection


async def switch(connection: asyncpg.Connection, live: Generation, chosen: Generation) -> None:
    """Make ``chosen`` the live generation in the place of ``live``, inside ``exclusive``.

    Raises:
        WriteConflict: one of them isn't any more what it was.
    """
    for query, generation in (("retire_live", live), ("make_live", chosen)):
        status = await connection.execute(_GENERATIONS[query], generation.project_id, generation.id)
        if status != "UPDATE 1":
            raise WriteConflict(f"generation {generation.id} was switched or dropped meanwhile")
