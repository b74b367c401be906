"""Runs whose workers and publishers reach their servers through a network that can fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from events.names import GROUPS
from tests.chaos.fleet import Worker
from tests.chaos.runs import Chaos, Run
from tests.support.databases import Database, fresh_database
from tests.support.proxy import Proxy, running_proxy
from tests.support.waiting import eventually

__all__ = ["Network", "Networks"]

SOCKET_TIMEOUT = "?socket_timeout=2"
STATEMENT_TIMEOUT = "PT4S"
LEASE = "PT2S"
"""These three are about a third of their defaults."""


@dataclass
class Network:
    """Run with proxies: ``redis`` and ``postgres`` for workers, ``publishing`` for all others.

    The run's verifier uses none of them.
    """

    run: Run
    redis_url: str
    redis: Proxy
    postgres: Proxy
    publishing: Proxy

    @property
    def doors(self) -> tuple[Proxy, ...]:
        """All three proxies."""
        return self.redis, self.postgres, self.publishing

    async def worker_beside(self) -> Worker:
        """Start a worker that uses no proxy."""
        settings: dict[str, Any] = _urls(self.run.database)
        return await self.run.worker(HEADRACE_REDIS_URL=self.redis_url, **settings)

    def traffic(self) -> AbstractAsyncContextManager[None]:
        """Changes and questions, few enough for a worker that is cut off most of the time."""
        return self.run.load.running(changes_per_second=20, questions_per_second=3)

    async def handles(self, changes: int) -> None:
        """Wait until ``changes`` more changes are handled."""
        wanted = await self._handled() + changes

        async def enough() -> bool:
            return await self._handled() >= wanted

        await eventually(enough, f"{changes} more changes are handled", timeout=30, every=0.2)

    async def reconnects(self, door: Proxy, connections: int = 1) -> None:
        """Wait until clients have made ``connections`` new connections through the proxy."""
        wanted = door.accepted + connections
        await eventually(lambda: door.accepted >= wanted, "new connections are made", timeout=30)

    async def taken_over(self) -> None:
        """Wait until the worker without a proxy has taken over all pending entries."""

        async def is_so() -> bool:
            mine = self.run.workers[-1].consumer.encode()
            return all(one.startswith(mine) for one in await self._holders())

        await eventually(is_so, "all is taken over", timeout=30, every=0.05)

    async def _holders(self) -> set[bytes]:
        """Consumers with pending entries."""
        holders: set[bytes] = set()
        for topic, group in GROUPS.items():
            stream = self.run.names.stream(topic)
            rows: Any = await self.run.redis.xpending_range(stream, group, "-", "+", 1_000)
            holders |= {row["consumer"] for row in rows}
        return holders

    async def _handled(self) -> int:
        owner = await asyncpg.connect(self.run.database.owner_url)
        try:
            return int(await owner.fetchval("SELECT count(*) FROM ledger"))
        finally:
            await owner.close()


@dataclass(frozen=True)
class Networks:
    """Factory of runs behind three proxies."""

    chaos: Chaos

    @asynccontextmanager
    async def __call__(self, seed: int, scenario: str) -> AsyncIterator[Network]:
        """Run without workers; its proxies end with it."""
        redis_url = self.chaos.redis_url
        async with (
            fresh_database(self.chaos.postgres) as database,
            running_proxy(redis_url) as redis,
            running_proxy(redis_url) as publishing,
            running_proxy(database.worker_url) as postgres,
            self.chaos(
                seed,
                scenario=scenario,
                client_url=publishing.url + SOCKET_TIMEOUT,
                database=database,
                HEADRACE_REDIS_URL=redis.url + SOCKET_TIMEOUT,
                HEADRACE_STATEMENT_TIMEOUT=STATEMENT_TIMEOUT,
                HEADRACE_LEASE=LEASE,
                **_urls(database, postgres),
            ) as run,
        ):
            yield Network(run, redis_url, redis, postgres, publishing)


def _urls(database: Database, door: Proxy | None = None) -> dict[str, str]:
    """URLs of both Postgres users, through the proxy if one is given."""
    urls = {
        "HEADRACE_DATABASE_URL": database.worker_url,
        "HEADRACE_OWNER_DATABASE_URL": database.owner_url,
    }
    return urls if door is None else {name: door.through(url) for name, url in urls.items()}
