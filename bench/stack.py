"""Servers for a measurement, in a temporary directory that is removed with them."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg
from aiohttp import web

from runtime.child_process import ChildProcess
from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from runtime.worker_process import worker_process
from store.postgres.schema import upgrade

__all__ = ["Stack", "bench_stack", "free_port", "served", "until"]

_PATIENCE = timedelta(minutes=2)
_END_WITHIN_SECONDS = 0.1


@dataclass(frozen=True)
class Stack:
    """Running servers, and methods to start workers for them."""

    redis_url: str
    database_url: str
    owner_database_url: str
    archive_url: str

    @asynccontextmanager
    async def worker(self, *arguments: str, **environment: str) -> AsyncIterator[ChildProcess]:
        """Run one worker process (``headrace worker ARGUMENTS``) for the duration of the context.

        Raises:
            ConfigurationError: it is not ready in time, or has ended; the message quotes its log.
        """
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
            async with worker_process(
                *arguments,
                environment={**self.environment(), **environment},
                stop_timeout=_PATIENCE,
                log=Path(directory) / "worker.log",
            ) as child:
                yield child

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[asyncpg.Connection]:
        """Open a connection that sees all rows."""
        connection = await asyncpg.connect(self.owner_database_url)
        try:
            yield connection
        finally:
            await connection.close()

    def settings(self) -> Settings:
        """Return the settings of a process that works with these servers."""
        return Settings(
            redis_url=self.redis_url,
            database_url=self.database_url,
            owner_database_url=self.owner_database_url,
            stream_prefix="headrace",
            partitions=1,
            archive_url=self.archive_url,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of such a process; they override our own."""
        return {
            "HEADRACE_STREAM_PREFIX": "headrace",
            "HEADRACE_PARTITIONS": "1",
            "HEADRACE_REDIS_URL": self.redis_url,
            "HEADRACE_DATABASE_URL": self.database_url,
            "HEADRACE_OWNER_DATABASE_URL": self.owner_database_url,
            "HEADRACE_ARCHIVE_URL": self.archive_url,
        }


@asynccontextmanager
async def bench_stack() -> AsyncIterator[Stack]:
    """Run empty, migrated embedded Redis and Postgres servers."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        home = Path(directory)
        postgres, redis = EmbeddedPostgres(home), EmbeddedRedis(home)
        urls = await postgres.start()
        try:
            redis_url = await redis.start()
            await upgrade(urls.owner)
            yield Stack(redis_url, urls.operator, urls.owner, str(home / "archive"))
        finally:
            await redis.stop()
            await postgres.stop()


@asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free port of the loopback interface; provides its address."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_END_WITHIN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def free_port() -> int:
    """Return a port of the loopback interface that nothing uses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def until(
    condition: Callable[[], Awaitable[bool]],
    description: str,
    patience: timedelta,
    every_seconds: float,
) -> None:
    """Wait for a condition that other processes bring about, and check it at an interval.

    Raises:
        ConfigurationError: it does not hold in time.
    """
    try:
        async with asyncio.timeout(patience.total_seconds()):
            while not await condition():  # noqa: ASYNC110  # other processes bring it about
                await asyncio.sleep(every_seconds)
    except TimeoutError:
        raise ConfigurationError(
            f"not within {patience}: {description}", "measure on a machine with less load"
        ) from None
