"""Background maintenance: merges segments, extends the vocabulary, builds vector indexes.

Any number of workers may run it at once: an advisory lock per generation lets one of them work.
Queries and writers never wait for it, except in one case: see ``store.search.vector_indexes``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

import asyncpg
import structlog

from runtime.lifespan import wait_for_tick
from store.generations import catalog
from store.generations.catalog import Generation
from store.postgres.connection import WriteConflict
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.activity import Activity, Writes
from store.search.keyword.segment_merge import (
    find_wasteful,
    list_sizes,
    merge_segments,
    plan_merges,
    sort_words,
)
from store.search.vector_indexes import VectorIndexes

__all__ = ["EXACT_CHUNKS", "Maintenance"]

log = structlog.get_logger(__name__)

EXACT_CHUNKS = 10_000
INTERVAL = timedelta(seconds=2)
SWEEP_INTERVAL = timedelta(minutes=5)

_QUERIES = named("maintenance")
_ANALYZE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Swept:
    """Time at which a project's live generation was last swept or first seen."""

    generation_id: int
    at: float


class Maintenance:
    """Keeps the live generation of every project fast to search.

    Every ``interval`` it maintains the projects that were written to recently, and every
    ``sweep_interval`` all projects, so that idle projects cost almost nothing.

    ``owner_url`` is the URL of the owner of the tables; without it, building a vector index blocks
    writers. ``exact_chunks``: a generation gets no index for up to this many vectors.
    """

    def __init__(
        self,
        database: Database,
        owner_url: str | None = None,
        *,
        exact_chunks: int = EXACT_CHUNKS,
        interval: timedelta = INTERVAL,
        sweep_interval: timedelta = SWEEP_INTERVAL,
    ) -> None:
        self._database = database
        self._indexes = VectorIndexes(database, owner_url, exact_chunks)
        self._interval = interval
        self._sweep_interval = sweep_interval
        writes = Writes(database)
        self._written = Activity(database, sweep_interval, writes)
        self._embedded = Activity(database, sweep_interval, writes)
        self._swept: dict[int, _Swept] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; failures are logged, and retried in the next round.

        A vector index can take minutes to build; segments continue to be merged during that time.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._keep_keywords, stop))
            tasks.create_task(self._repeat(self._keep_vectors, stop))

    async def run_once(self) -> None:
        """Do all that is due in every project; a failure in one does not affect the others.

        Raises:
            ExceptionGroup: the failures, raised after all projects were processed.
        """
        await self._analyze()
        activity = Activity(self._database, self._sweep_interval)
        due = await activity.due()
        await self._for_each(due, activity, self.tidy_keywords, self._refresh_indexes)

    async def _repeat(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - failed maintenance must not end the worker
                log.warning("maintenance.failed", error=repr(error))
            await wait_for_tick(stop, self._interval)

    async def _keep_keywords(self) -> None:
        due = await self._written.due()
        if due:
            await self._analyze()
        await self._for_each(due, self._written, self.tidy_keywords)

    async def _keep_vectors(self) -> None:
        due = await self._embedded.due()
        await self._for_each(due, self._embedded, self._refresh_indexes)

    async def _for_each(
        self,
        due: Sequence[int],
        activity: Activity,
        *tasks: Callable[[Generation], Awaitable[None]],
    ) -> None:
        """Run tasks for each due live generation; a replay maintains the one that it builds."""
        failures: list[Exception] = []
        for project_id in due:
            try:
                async with self._database.scope(project_id) as connection:
                    live = await catalog.live(connection, project_id)
                for task in tasks:
                    await task(live)
            except Exception as error:  # noqa: BLE001 - raised below
                activity.retry(project_id)
                failures.append(error)
        if failures:
            raise ExceptionGroup("maintenance failed", failures)

    async def _refresh_indexes(self, live: Generation) -> None:
        await self._indexes.refresh(live.project_id, live.id, after_import=True)

    async def _analyze(self) -> None:
        """Analyze new tables; those that another session works on wait for the next round.

        Autovacuum holds the same lock, and a build of a vector index holds it for minutes.
        """
        try:
            async with self._database.connection() as connection:
                if await connection.fetchval(_QUERIES["has_new_tables"]):
                    await connection.execute(
                        _QUERIES["analyze_new_tables"], timeout=_ANALYZE_TIMEOUT_S
                    )
        except WriteConflict as error:
            log.info("maintenance.analyze_deferred", reason=str(error))

    async def tidy_keywords(self, generation: Generation) -> None:
        """Merge a generation's segments and add its new words, each step in a transaction."""
        while await self._fold(generation):
            pass
        if self._sweep_is_due(generation):
            await self._sweep(generation)

    async def _fold(self, generation: Generation) -> bool:
        """Do one transaction of work; false if nothing is due or another worker holds the lock."""
        async with self._locked(generation) as connection:
            if connection is None:
                return False
            sorted_in = await sort_words(connection, generation.id)
            groups = plan_merges(await list_sizes(connection, generation.id))
            if groups:
                await merge_segments(connection, generation.id, groups[0])
        return sorted_in or bool(groups)

    async def _sweep(self, generation: Generation) -> None:
        """Rewrite the segments that hold too many deleted chunks."""
        async with self._locked(generation) as connection:
            if connection is None:
                return
            for segment_id in await find_wasteful(connection, generation.id):
                await merge_segments(connection, generation.id, [segment_id])

    @asynccontextmanager
    async def _locked(self, generation: Generation) -> AsyncIterator[asyncpg.Connection | None]:
        """Begin a transaction with the maintenance lock; yields None if another one holds it."""
        scope = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            is_held = await Lock.MAINTENANCE.try_acquire(connection, generation.id)
            yield connection if is_held else None

    def _sweep_is_due(self, generation: Generation) -> bool:
        now = _Swept(generation.id, monotonic())
        swept = self._swept.get(generation.project_id, now)
        if swept.generation_id != generation.id:
            swept = now
        due = now.at - swept.at >= self._sweep_interval.total_seconds()
        self._swept[generation.project_id] = now if due else swept
        return due
