"""Background maintenance: merges segments, extends the vocabulary, builds vector indexes.

Any number of workers may run it at once: they share the due projects, and an advisory lock per
generation lets one of them work.
Queries and writers never wait for it, except in one case: see ``store.search.vector_indexes``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from time import monotonic

import asyncpg
import structlog

from runtime.lifespan import IdlePace, wait_for_tick
from store.generations import catalog
from store.generations.catalog import Generation, Projects
from store.postgres.locks import Lock
from store.postgres.pool import EVERY_AGENT, Database
from store.search.due_projects import LEASE, DueProject, DueProjects, Task
from store.search.index_builders import BuildLimits
from store.search.keyword.segment_merge import (
    find_wasteful,
    list_sizes,
    merge_segments,
    plan_merges,
    sort_words,
)
from store.search.statistics import analyze
from store.search.vector_indexes import VectorIndexes

__all__ = ["EXACT_CHUNKS", "Maintenance"]

log = structlog.get_logger(__name__)

EXACT_CHUNKS = 10_000
INTERVAL = timedelta(seconds=2)
SWEEP_INTERVAL = timedelta(minutes=5)
"""Time from a write to the search of the project's segments for deleted chunks."""

RETRY_AFTER = timedelta(seconds=10)
"""Pause of a project whose maintenance failed."""

STATISTICS_PAUSE = timedelta(minutes=10)
"""Time without statistics of chunks after they could not be analyzed."""

_ROUND_INTERVAL = timedelta(minutes=1)

Work = Callable[[Generation, DueProject], Awaitable[bool]]


class Maintenance:
    """Keeps the live generation of every project fast to search.

    Every ``interval`` it maintains the projects that are due, so that idle projects cost nothing
    but one visit per hour.

    ``owner_url`` is the URL of the owner of the tables; without it, building a vector index blocks
    writers. ``exact_chunks``: a generation gets no index for up to this many vectors. ``limits``:
    those of index builds.
    """

    def __init__(
        self,
        database: Database,
        owner_url: str | None = None,
        *,
        exact_chunks: int = EXACT_CHUNKS,
        limits: BuildLimits | None = None,
        interval: timedelta = INTERVAL,
    ) -> None:
        self._database = database
        self._indexes = VectorIndexes(database, owner_url, exact_chunks, limits=limits)
        self._interval = interval
        self._due_keywords = DueProjects(database, Task.SEGMENTS, Task.SWEEP)
        self._due_vectors = DueProjects(database, Task.VECTORS)
        self._sweeps = DueProjects(database, Task.SWEEP)
        self._rounds = DueProjects(database, *(task for task in Task if task != Task.SEGMENTS))
        self._statistics_from = 0.0

    async def run(self, stop: asyncio.Event, count: Callable[[], int] = lambda: 0) -> None:
        """Run until ``stop`` is set; failures are logged, and retried later.

        While the ``count`` of the events of this process has not changed for 20 s, it looks for
        due projects every eleven intervals: other writers, such as a purge, are in no hurry. A
        vector index can take minutes to build; segments continue to be merged during that time.
        """
        async with asyncio.TaskGroup() as tasks:
            for work in (self._keep_keywords, self._keep_vectors):
                pace = IdlePace(self._interval, count)
                tasks.create_task(self._repeat(work, stop, pace.pause))
            pause = partial(wait_for_tick, interval=_ROUND_INTERVAL)
            tasks.create_task(self._repeat(self._rounds.begin_round, stop, pause))

    async def run_once(self) -> None:
        """Maintain every project, due or not; a failure in one does not affect the others.

        Raises:
            ExceptionGroup: the failures, raised after all projects were processed.
        """
        projects = await Projects(self._database).all()
        await analyze(self._database, list(projects.values()))
        failures: list[Exception] = []
        async with self._database.connection() as connection:
            live = await catalog.live_generations(connection, projects.values())
        for generation in live.values():
            try:
                await self.tidy_keywords(generation)
                await self._sweep(generation)
                await self._refresh_indexes(generation)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        if failures:
            raise ExceptionGroup("maintenance failed", failures)

    async def _repeat(
        self,
        work: Callable[[], Awaitable[None]],
        stop: asyncio.Event,
        pause: Callable[[asyncio.Event], Awaitable[object]],
    ) -> None:
        while not stop.is_set():
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - failed maintenance must not end the worker
                log.warning("maintenance.failed", error=repr(error))
            await pause(stop)

    async def _keep_keywords(self) -> None:
        due = await self._due_keywords.take()
        # before the visits settle what says that these projects were written to
        written = [project.project_id for project in due if Task.SWEEP not in project.tasks]
        await self._sweeps.note(written, SWEEP_INTERVAL)
        if due:
            await self._analyze(due)
        await self._visit(due, self._due_keywords, self._tend_keywords)

    async def _analyze(self, due: Sequence[DueProject]) -> None:
        project_ids = [project.project_id for project in due]
        renew = partial(self._due_keywords.postpone, due, LEASE)
        with_chunks = monotonic() >= self._statistics_from
        if not await analyze(self._database, project_ids, renew, with_chunks=with_chunks):
            self._statistics_from = monotonic() + STATISTICS_PAUSE.total_seconds()

    async def _keep_vectors(self) -> None:
        due = await self._due_vectors.take()
        await self._visit(due, self._due_vectors, self._tend_vectors)

    async def _visit(self, due: Sequence[DueProject], source: DueProjects, work: Work) -> None:
        """Work on the live generation of each due project; a replay maintains its own.

        Raises:
            ExceptionGroup: the failures, raised after all projects were processed.
        """
        if not due:
            return
        async with self._database.connection() as connection:
            live = await catalog.live_generations(
                connection, [project.project_id for project in due]
            )
        done = [project for project in due if project.project_id not in live]
        unfinished: list[DueProject] = []
        failed: list[DueProject] = []
        failures: list[Exception] = []
        for project in due:
            if project.project_id not in live:
                continue
            try:
                is_done = await work(live[project.project_id], project)
            except Exception as error:  # noqa: BLE001 - raised below
                failed.append(project)
                failures.append(error)
            else:
                (done if is_done else unfinished).append(project)
        await source.settle(done)
        await source.postpone(unfinished, self._interval)
        await source.postpone(failed, RETRY_AFTER)
        if failures:
            raise ExceptionGroup("maintenance failed", failures)

    async def _tend_keywords(self, live: Generation, project: DueProject) -> bool:
        """Do what is due; false if another worker holds the lock."""
        is_done = await self.tidy_keywords(live)
        if Task.SWEEP in project.tasks:
            return await self._sweep(live) and is_done
        return is_done

    async def _tend_vectors(self, live: Generation, _: DueProject) -> bool:
        """Build the indexes that are due; false if an index has to be built later."""
        return await self._refresh_indexes(live)

    async def _refresh_indexes(self, live: Generation) -> bool:
        refreshed = await self._indexes.refresh(live.project_id, live.id, after_import=True)
        return not refreshed.left

    async def tidy_keywords(self, generation: Generation) -> bool:
        """Merge a generation's segments and add its new words, each step in a transaction.

        Returns false if another worker holds the lock, so that work may be left.
        """
        while has_more := await self._fold(generation):
            pass
        return has_more is not None

    async def _fold(self, generation: Generation) -> bool | None:
        """Do one transaction of work; return whether more may be due.

        Returns None if another worker holds the lock.
        """
        async with self._locked(generation) as connection:
            if connection is None:
                return None
            has_more_words = await sort_words(connection, generation.id)
            groups = plan_merges(await list_sizes(connection, generation.id))
            if groups:
                await merge_segments(connection, generation.id, groups[0])
        return has_more_words or bool(groups)

    async def _sweep(self, generation: Generation) -> bool:
        """Rewrite the segments that hold too many deleted chunks; false if the lock is held."""
        async with self._locked(generation) as connection:
            if connection is None:
                return False
            for segment_id in await find_wasteful(connection, generation.id):
                await merge_segments(connection, generation.id, [segment_id])
        return True

    @asynccontextmanager
    async def _locked(self, generation: Generation) -> AsyncIterator[asyncpg.Connection | None]:
        """Begin a transaction with the maintenance lock; yields None if another one holds it."""
        scope = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            is_held = await Lock.MAINTENANCE.try_acquire(connection, generation.id)
            yield connection if is_held else None
