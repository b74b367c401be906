"""Lock that allows one archiver at a time in a deployment, across all processes."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from store.database import Database
from store.named_queries import named

__all__ = ["ArchiverLock", "archiver_lock"]

_LOCK_SPACE = 0x48445241
_QUERIES = named("switching")


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
