"""Lock that allows one replay of a project at a time, across all processes."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from runtime.errors import Unavailable, UsageError
from store.postgres.connection import explained
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["LOCK_SPACE", "ArchiverLock", "ReplayLock", "archiver_lock", "replay_lock"]

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


_LOCK_SPACE = 0x48445241


class ArchiverLock:
    """A lock that is held as long as its connection is open."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def check(self) -> None:
        """Make sure that the lock is still held.

        Raises:
            asyncpg.PostgresError, asyncpg.InterfaceError, OSError: the connection and the lock are
                lost; ``archiver_lock`` raises Unavailable for these errors.
        """
        await self._connection.execute("select 1")


@asynccontextmanager
async def archiver_lock(database: Database, deployment: str) -> AsyncIterator[ArchiverLock | None]:
    """Hold the lock of a deployment (its stream prefix); yields None if another process holds it.

    Raises:
        Unavailable: Postgres cannot be reached, or the connection is lost.
    """
    key = zlib.crc32(deployment.encode()) & 0x7FFFFFFF
    async with database.connection() as connection:
        if not await connection.fetchval(_QUERIES["try_hold"], _LOCK_SPACE, key):
            yield None
            return
        try:
            yield ArchiverLock(connection)
        finally:
            if not connection.is_closed():
                await connection.execute(_QUERIES["let_go"], _LOCK_SPACE, key)
