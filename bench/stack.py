"""Servers of its own for a measurement, in a directory that goes away with them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from runtime.errors import Unavailable
from runtime.settings import Settings
from store.schema import upgrade

__all__ = ["Stack", "bench_stack"]

READY = b"worker ready"


@dataclass(frozen=True)
class Stack:
    """Running servers, and a way to put workers beside them."""

    redis_url: str
    database_url: str
    owner_database_url: str

    @asynccontextmanager
    async def worker(self, *arguments: str, **environment: str) -> AsyncIterator[None]:
        """One worker process (``headrace worker ARGUMENTS``), ready, ended at the end.

        Raises:
            Unavailable: it ended before it was ready; its last words are in the message.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.main", "worker", *arguments),
            env={**os.environ, **self._environment(), **environment},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await _until_ready(process)
            yield
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()

    def settings(self) -> Settings:
        """Settings of a process that works with these servers."""
        return Settings(
            redis_url=self.redis_url,
            database_url=self.database_url,
            owner_database_url=self.owner_database_url,
        )

    def _environment(self) -> dict[str, str]:
        return {
            "HEADRACE_REDIS_URL": self.redis_url,
            "HEADRACE_DATABASE_URL": self.database_url,
            "HEADRACE_OWNER_DATABASE_URL": self.owner_database_url,
        }


async def _until_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        if READY in line:
            return
    raise Unavailable("the worker ended before it was ready: run `headrace worker` to see why")


@asynccontextmanager
async def bench_stack() -> AsyncIterator[Stack]:
    """Embedded Redis and Postgres, migrated, with nothing in them."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        home = Path(directory)
        postgres, redis = EmbeddedPostgres(home), EmbeddedRedis(home)
        urls = await postgres.start()
        try:
            redis_url = await redis.start()
            await upgrade(urls.owner)
            yield Stack(redis_url, urls.worker, urls.owner)
        finally:
            await redis.stop()
            await postgres.stop()
