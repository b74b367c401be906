"""Every advisory lock, and the functions that take them."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum, unique

import asyncpg

from runtime.errors import Unavailable, UsageError
from store.postgres.connection import explained
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["EVERY_PROJECT", "MIGRATION_LOCK", "HeldLock", "Lock", "archiver_lock", "replay_lock"]

MIGRATION_LOCK = 7235171042
"""Key of the lock that lets one process at a time apply migrations."""

EVERY_PROJECT = 0
"""Key of a lock that concerns all projects together."""

_QUERIES = named("locks")
_POLL_SECONDS = 0.25


@unique
class Lock(IntEnum):
    """Spaces of the advisory locks. The key in a space says which object is locked."""

    REPLAY = 0x48445250
    """By project: one process at a time replays, rolls back, drops or purges."""

    ARCHIVER = 0x48445241
    """By hash of the stream prefix: one process at a time archives a deployment."""

    SWITCH = 0x48445357
    """By project: a switch of its live generation excludes writers, who share the lock."""

    MAINTENANCE = 0x48444B57
    """By generation: one process at a time merges its segments."""

    VECTOR_INDEX = 0x48445645
    """By generation: one process at a time builds its vector indexes. Key 0: any generation."""

    ARCHIVED_CONTENTS = 0x48444152
    """By project: dropping of contents excludes transactions that add or need contents."""

    COMPACTION = 0x48444350
    """By project: one process at a time compacts, redacts or repairs the archive."""

    SHARED_FILES = 0x48445346
    """Key 0: one process at a time removes, replaces or enters files that projects share."""

    PUBLISHER_KEYS = 0x48444B59
    """By project: one retirement at a time checks that a key remains."""

    CONTEXTS = 0x48444358
    """Key 0: one process at a time asks for contexts and spends their budget, or purges them."""

    SOURCES = 0x48444E53
    """By project: one registration at a time, so that two sources can't take the same name."""

    async def acquire(self, connection: asyncpg.Connection, key: int) -> None:
        """Wait for the lock, which ends with the transaction."""
        await connection.execute(_QUERIES["acquire"], self, key)

    async def try_acquire(self, connection: asyncpg.Connection, key: int) -> bool:
        """Take the lock until the end of the transaction, unless another session holds it."""
        return bool(await connection.fetchval(_QUERIES["try_acquire"], self, key))

    async def share(self, connection: asyncpg.Connection, key: int) -> None:
        """Wait for the lock; others may share it until the transaction ends.

        Later statements of the transaction see the result of a transaction that held it alone.
        """
        await connection.execute(_QUERIES["share"], self, key)

    @asynccontextmanager
    async def holding(
        self, connection: asyncpg.Connection, key: int, *, wait: bool = False
    ) -> AsyncIterator[bool]:
        """Hold the lock outside of any transaction; yields false if another session holds it.

        ``wait`` polls until the lock is free. A session that queues in Postgres would delay an
        index build that waits for all older statements.

        Behind a pooler, a transaction holds the lock, because it alone keeps a session.
        """
        if connection.is_shared:
            async with connection.transaction_with(_QUERIES["may_be_silent"]):
                is_held = await self._try_without_snapshot(connection, key)
                while wait and not is_held:
                    await asyncio.sleep(_POLL_SECONDS)
                    is_held = await self._try_without_snapshot(connection, key)
                yield is_held
            return
        try:
            is_held = await connection.fetchval(_QUERIES["try_hold"], self, key)
            while wait and not is_held:
                await asyncio.sleep(_POLL_SECONDS)
                is_held = await connection.fetchval(_QUERIES["try_hold"], self, key)
        except asyncio.CancelledError:  # which the server may get after it has granted the lock
            await self._release(connection, key)
            raise
        try:
            yield bool(is_held)
        finally:
            if is_held:
                await self._release(connection, key)

    async def _release(self, connection: asyncpg.Connection, key: int) -> None:
        if not _is_lost(connection):
            await connection.execute(_QUERIES["release"], self, key)

    async def _try_without_snapshot(self, connection: asyncpg.Connection, key: int) -> bool:
        """Take the lock until the end of the transaction, unless another session holds it.

        A statement with parameters would keep its snapshot until the next one, and an index build
        waits for old snapshots.
        """
        statement = _QUERIES["try_without_snapshot"].format(space=int(self), key=int(key))
        return bool(await connection.execute(statement) == "SELECT 1")

    async def is_held(self, connection: asyncpg.Connection, key: int) -> bool:
        """Return whether any session holds the lock, without acquiring it."""
        return bool(await connection.fetchval(_QUERIES["is_held"], self, key))


class HeldLock:
    """A lock that ``holder`` holds as long as its connection lives. ``remedy``: after its loss."""

    def __init__(self, connection: asyncpg.Connection, holder: str, remedy: str = "") -> None:
        self._connection = connection
        self._holder = holder
        self._remedy = remedy

    def check(self) -> None:
        """Raise Unavailable if the connection is known to be lost. Sends nothing to the server.

        Raises:
            Unavailable: the connection is lost, and another process may hold the lock.
        """
        if _is_lost(self._connection):
            message = f"{self._holder} lost its lock because its connection to Postgres broke"
            raise Unavailable(message, self._remedy)

    async def prove(self) -> None:
        """Make sure that the lock is held, by a query to the server.

        Raises:
            Unavailable: the lock is lost, or the server cannot be reached.
        """
        self.check()
        with explained():
            await self._connection.execute(_QUERIES["ping"])


def _is_lost(connection: asyncpg.Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True  # the pool has taken back a connection that broke


@asynccontextmanager
async def replay_lock(database: Database, project: str, project_id: int) -> AsyncIterator[HeldLock]:
    """Hold the project's replay lock, which is released however the process ends.

    Raises:
        UsageError: another process holds it.
        Unavailable: Postgres cannot be reached.
    """
    async with (
        database.connection() as connection,
        Lock.REPLAY.holding(connection, project_id) as is_held,
    ):
        if not is_held:
            raise UsageError(f"{project} is being replayed by another process", "wait for its end")
        remedy = "run it again to resume it; nothing was switched"
        yield HeldLock(connection, f"the replay of {project}", remedy)


@asynccontextmanager
async def archiver_lock(database: Database, deployment: str) -> AsyncIterator[HeldLock | None]:
    """Hold the lock of a deployment (its stream prefix); yields None if another process holds it.

    Raises:
        Unavailable: Postgres cannot be reached, or the connection is lost.
    """
    key = zlib.crc32(deployment.encode()) & 0x7FFFFFFF
    async with (
        database.connection() as connection,
        Lock.ARCHIVER.holding(connection, key) as is_held,
    ):
        yield HeldLock(connection, "the archiver") if is_held else None
