"""Run of a chaos test: deployment, workers, traffic and verification.

A run that fails prints its seed, the tail of its logbook and of its workers' logs, and the command
that repeats it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from redis.asyncio import Redis

from events.client.client import Client
from events.names import Names
from events.server.connection import connect
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from runtime.embedded import EmbeddedPostgres
from tests.chaos.fleet import Fleet, Worker
from tests.chaos.load import Load
from tests.chaos.logbook import Logbook
from tests.chaos.replays import Strike
from tests.chaos.replies import Replies
from tests.chaos.seeds import SEEDS_VARIABLE
from tests.chaos.verifier import Allowances, Verifier
from tests.support.cli import environment_of
from tests.support.databases import Database, fresh_database
from tests.support.waiting import eventually

__all__ = ["Chaos", "Run"]

_TOLD_WORKERS = 6
_numbers = count(1)


@dataclass
class Run:
    """Deployment, traffic and workers of a scenario.

    ``redis`` reaches the server directly. ``client`` and ``load`` use ``client_url``, and workers
    use ``environment``; each of these may point to a proxy.
    """

    seed: int
    redis: Redis
    database: Database
    names: Names
    client: Client
    load: Load
    logbook: Logbook
    replies: Replies
    environment: dict[str, str]
    fleet: Fleet
    verifier: Verifier
    workers: list[Worker] = field(default_factory=list)

    async def worker(
        self,
        *arguments: str,
        strike: Strike | None = None,
        chunkers: str = "",
        ready: bool = True,
        **settings: str,
    ) -> Worker:
        """Start a worker, see ``Fleet.start``; ``settings`` as ``HEADRACE_…=value``."""
        worker = await self.fleet.start(
            *arguments,
            environment={**self.environment, **settings},
            strike=strike,
            chunkers=chunkers,
            ready=ready,
        )
        self.workers.append(worker)
        return worker

    async def verify(self, allowed: Allowances | None = None) -> None:
        """Publish uncertain changes again, and apply the rules of the verifier."""
        for one in self.logbook.perhaps:
            one.receipt = await self.client.publish(one.event, one.lane)
        await self.verifier.verify(self.workers, allowed)

    async def answered(self, timeout: float = 30.0) -> None:
        """Wait until every question has a reply."""
        questions = self.logbook.questions

        async def all_are() -> bool:
            await self.replies.collect(questions)
            return not self.replies.unanswered(questions)

        await eventually(all_are, "every question has a reply", timeout=timeout, every=0.2)

    def report(self) -> str:
        """Report of a failed run."""
        latest = self.workers[-_TOLD_WORKERS:]
        return "\n".join([self.logbook.tail(), *(one.tail() for one in latest)])


@dataclass(frozen=True)
class Chaos:
    """Factory of runs. ``test`` is the pytest id of the test."""

    fleet: Fleet
    postgres: EmbeddedPostgres
    redis_url: str
    home: Path
    test: str
    partitions: int = 1

    @asynccontextmanager
    async def __call__(
        self,
        seed: int,
        *,
        scenario: str = "",
        redis_url: str | None = None,
        client_url: str | None = None,
        database: Database | None = None,
        **settings: str,
    ) -> AsyncIterator[Run]:
        """Open a run without traffic or workers; its workers are killed at the end.

        Each run has its own stream prefix and database, so that several can run at once.

        Args:
            seed: seed of the traffic.
            scenario: description of the faults, for the report.
            redis_url: server that this test may break; otherwise the shared one.
            client_url: URL of the same server for publishers and askers.
            database: database that this test may break; otherwise a fresh one.
            settings: environment of its workers, such as ``HEADRACE_REDIS_URL=…`` of a proxy.
        """
        async with AsyncExitStack() as stack:
            url = redis_url or self.redis_url
            where = database
            if where is None:
                where = await stack.enter_async_context(fresh_database(self.postgres))
            names = Names(f"run{next(_numbers)}", self.partitions)
            run = await self._opened(stack, seed, names, url, client_url or url, where, settings)
            try:
                yield run
            except Exception as error:
                error.add_note(self._note(scenario, run))
                raise

    async def _opened(
        self,
        stack: AsyncExitStack,
        seed: int,
        names: Names,
        url: str,
        client_url: str,
        database: Database,
        settings: dict[str, str],
    ) -> Run:
        redis, asking = connect(url), connect(client_url)
        stack.push_async_callback(redis.aclose)
        stack.push_async_callback(asking.aclose)
        client = Client.connect(client_url, prefix=names.prefix, partitions=names.partitions)
        await stack.enter_async_context(client)
        logbook, replies = Logbook(), Replies(redis)
        count_tokens = TokenCounter(tokenizer_path(None))
        run = Run(
            seed=seed,
            redis=redis,
            database=database,
            names=names,
            client=client,
            load=Load(client, asking, names, logbook, seed),
            logbook=logbook,
            replies=replies,
            environment=self._environment(url, database, names) | settings,
            fleet=self.fleet,
            verifier=Verifier(redis, database, names, logbook, replies, count_tokens),
        )
        stack.push_async_callback(_killed, run)
        return run

    def _environment(self, url: str, database: Database, names: Names) -> dict[str, str]:
        home = self.home / names.prefix
        home.mkdir()
        return environment_of(url, database, home) | {
            "HEADRACE_DATABASE_URL": database.worker_url,
            "HEADRACE_STREAM_PREFIX": names.prefix,
            "HEADRACE_PARTITIONS": str(names.partitions),
            "HEADRACE_MODEL": HASHING_MODEL,
            "HEADRACE_BATCH_DOCUMENTS": "16",
            "HEADRACE_RETRY_DELAY": "PT0.1S",
        }

    def _note(self, scenario: str, run: Run) -> str:
        seed = run.seed
        again = f"{SEEDS_VARIABLE}={seed}-{seed} python -m pytest '{self.test}'"
        return f"\nseed {seed}, {scenario or self.test}\nrun it again: {again}\n{run.report()}"


async def _killed(run: Run) -> None:
    for worker in run.workers:
        await worker.kill()
