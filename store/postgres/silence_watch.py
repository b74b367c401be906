"""Ends sessions of stopped processes that block the transactions of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import asyncpg
import structlog

from runtime.errors import OperatorError, Unavailable
from store.postgres.connection import explained
from store.postgres.named_queries import named

__all__ = ["SilenceWatch"]

log = structlog.get_logger(__name__)

_QUERIES = named("pool")
_PATIENCE_S = 0.3
"""Below ``store.generations.switch.LOCK_WAIT_MS``, so that a switch checks while it waits."""
_INTERVAL_S = 0.5
_CLOSE_TIMEOUT_S = 1.0


class SilenceWatch:
    """Checks for silent sessions while a transaction takes longer than usual.

    The waiting side must check: the server itself never ends a session whose client is silent in
    the middle of a statement. While a transaction takes long for another reason, this costs one or
    two SQL queries per second.

    Args:
        pool: a connection for the checks; those of the transactions may all be waiting.
        silence: longest time that a client may be silent in the middle of a statement.
    """

    def __init__(self, pool: asyncpg.Pool, silence: timedelta) -> None:
        self._pool = pool
        self._silence = silence
        self._late: set[object] = set()
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Check repeatedly, from 0.3 s after the beginning of the block until its end.

        A check that has begun is completed even then, because a transaction that gave up waiting is
        usually tried again.
        """
        block = object()
        timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._begin, block)
        try:
            yield
        finally:
            timer.cancel()
            self._late.discard(block)

    async def close(self) -> None:
        """Stop checking."""
        self._pool.terminate()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching], timeout=_CLOSE_TIMEOUT_S)

    def _begin(self, block: object) -> None:
        self._late.add(block)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            with suppress(Unavailable, OperatorError), explained():
                await self._end_silent_sessions()
            if not self._late:
                return
            await asyncio.sleep(_INTERVAL_S)

    async def _end_silent_sessions(self) -> None:
        async with self._pool.acquire() as connection:
            try:
                async with asyncio.timeout(self._silence.total_seconds()):
                    ended = await self._ended(connection)
            except BaseException:
                connection.terminate()  # the network may have dropped it
                raise
        if ended:
            log.warning("silent_sessions.ended", sessions=ended)

    async def _ended(self, connection: asyncpg.Connection) -> int:
        """Number of sessions that were ended; takes a fifth of ``silence`` if one is suspect."""
        if not await connection.fetchval(_QUERIES["may_end_silent_sessions"]):
            return 0
        return int(await connection.fetchval(_QUERIES["end_silent_sessions"], self._silence))
