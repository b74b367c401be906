"""Lock that allows one replay of a project at a time, across all processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from runtime.errors import Unavailable, UsageError
from store.connecting import explained
from store.database import Database
from store.named_queries import named

__all__ = ["LOCK_SPACE", "ReplayLock", "replay_lock"]

LOCK_SPACE = 0x48445250
"""Space of the advisory locks that replays hold, by project."""

_QUERIES = named("switching")


class ReplayLock:
    """A lock that is held as long as its connection lives."""

    def __init__(self, connection: asyncpg.Connection, project: str) -> None:
        self._connection = connection
        self._project = project

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is known to be lost.

        The pool takes back a connection that breaks.
        """
        try:
            return bool(self._connection.is_closed())
        except asyncpg.InterfaceError:
            return True

    def check(self) -> None:
        """Raise Unavailable if the connection is known to be lost. Sends nothing to the server.

        Raises:
            Unavailable: the connection is lost, and another process may hold the lock.
        """
        if self.is_lost:
            raise Unavailable(
                f"the replay of {self._project} lost its lock because its connection to Postgres "
                "broke; nothing was switched: run it again to resume it"
            )

    async def prove(self) -> None:
        """Make sure that the lock is held, by a query to the server.

        Raises:
            Unavailable: the lock is lost, or the server cannot be reached.
        """
        self.check()
        with explained():
            await self._connection.fetchval(_QUERIES["ping"])


@asynccontextmanager
async def replay_lock(
    database: Database, project: str, project_id: int
) -> AsyncIterator[ReplayLock]:
    """Hold the project's replay lock, which is released however the process ends.

    Raises:
        UsageError: another process holds it.
        Unavailable: Postgres cannot be reached.
    """
    async with database.connection() as connection:
        if not await connection.fetchval(_QUERIES["try_hold"], LOCK_SPACE, project_id):
            raise UsageError(
                f"project {project} is being replayed by another process: wait until that is done"
            )
        lock = ReplayLock(connection, project)
        try:
            yield lock
        finally:
            if not lock.is_lost:
                await connection.execute(_QUERIES["let_go"], LOCK_SPACE, project_id)
