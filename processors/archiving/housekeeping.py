"""Periodic maintenance by the archiver: trim streams, compact the archive, release rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import TypeVar

import structlog
from redis.asyncio import Redis

from events.names import Names
from events.streams.trim import changes_needed_from, oldest_change, trim_changes
from processors.archiving.archiver import Archiver
from processors.archiving.outbox_relay import OutboxRelay
from runtime import metrics
from runtime.lifespan import wait_for_tick
from store.archive import Archive
from store.documents.contents import release_contents
from store.generations.catalog import Projects
from store.postgres.pool import Database
from store.purge.expiry import Expiry
from store.purge.projects import DeletedProjects, remove_project
from store.views.batches import Batches

__all__ = ["Archiving", "Housekeeping"]

T = TypeVar("T")
log = structlog.get_logger(__name__)

_LOOK_EVERY = timedelta(seconds=5)
_TRIM_EVERY = timedelta(minutes=1)
_RELEASE_EVERY = timedelta(minutes=10)
_COUNT_EVERY = timedelta(minutes=10)
_TIDY_EVERY = timedelta(hours=1)
_EXPIRE_EVERY = timedelta(hours=1)
_FIRST_COMPACTION = timedelta(minutes=15)
_FIRST_EXPIRY = timedelta(minutes=5)
_MANY_FILES = 5_000
"""Number of new files of a project that causes a compaction before it is due."""

_CLOCKS_DIFFER_BY = timedelta(hours=1)


@dataclass
class _Task:
    name: str
    every: timedelta
    run: Callable[[], Awaitable[None]]
    due_at: float


class Housekeeping:
    """Chores that run while the archiver of the same process holds the lock."""

    def __init__(
        self,
        redis: Redis,
        names: Names,
        database: Database,
        archive: Archive,
        expiry: Expiry,
        *,
        stream_retention: timedelta,
        archive_retention: timedelta,
        compaction_interval: timedelta,
    ) -> None:
        self._redis = redis
        self._names = names
        self._database = database
        self._archive = archive
        self._expiry = expiry
        self._stream_retention = stream_retention
        self._archive_retention = archive_retention
        self._files: dict[str, int] = {}
        first_compaction = min(_FIRST_COMPACTION, compaction_interval)
        self._tasks = [
            _due("trimming", _TRIM_EVERY, self.trim),
            _due("releasing", _RELEASE_EVERY, self.release),
            _due("batches", _RELEASE_EVERY, self.forget_handled),
            _due("merging", _COUNT_EVERY, self.merge),
            _due("deleted projects", _COUNT_EVERY, self.remove_deleted),
            _due("expiry", _EXPIRE_EVERY, self.expire, first=_FIRST_EXPIRY),
            _due("shared files", _TIDY_EVERY, self._archive.tidy_shared, first=_FIRST_COMPACTION),
            _due("compaction", compaction_interval, self.compact, first=first_compaction),
        ]

    async def run(self, stop: asyncio.Event, is_active: Callable[[], bool]) -> None:
        """Run due tasks until ``stop`` is set; a failed task is logged, and runs next time."""
        while not stop.is_set():
            if is_active():
                for task in self._tasks:
                    await _run_if_due(task)
            await wait_for_tick(stop, _LOOK_EVERY)

    async def trim(self) -> None:
        """Remove changes from Redis that are old, indexed and archived."""
        trimmed = await trim_changes(self._redis, self._names, self._stream_retention)
        metrics.CHANGES_TRIMMED.inc(trimmed)

    async def compact(self) -> None:
        """Compact the archive of every project."""
        await _each(await Projects(self._database).all(), self._compact)

    async def merge(self, many: int = _MANY_FILES) -> None:
        """Compact projects with ``many`` files more than after their last compaction.

        Infrequent changes create many small files.
        """

        async def merge(project: str) -> None:
            if await self._count(project) - self._files.get(project, 0) >= many:
                await self._compact(project)

        await _each(await Projects(self._database).all(), merge)

    async def _compact(self, project: str) -> None:
        await self._archive.compact(project, datetime.now(UTC) - self._archive_retention)
        self._files[project] = await self._count(project)

    async def _count(self, project: str) -> int:
        statistics = await self._archive.statistics(project)
        return 0 if statistics is None else statistics.files

    async def remove_deleted(self) -> None:
        """Remove the archives of projects that were deleted before the retention began."""
        before = datetime.now(UTC) - self._archive_retention
        projects = await DeletedProjects(self._database).all()
        await _each(
            [project.id for project in projects if project.deleted_at < before],
            partial(remove_project, self._database, self._archive),
        )

    async def forget_handled(self) -> None:
        """Delete the records of published changes that the ledger has."""
        projects = Projects(self._database)
        batches = Batches(self._database, projects)
        await _each(await projects.all(), batches.forget_handled_changes)

    async def release(self) -> None:
        """Delete contents from Postgres that were sent by reference, are archived and old."""
        needed = await changes_needed_from(self._redis, self._names, self._stream_retention)
        if needed is None:
            return
        before = datetime.fromtimestamp(needed / 1000, UTC) - _CLOCKS_DIFFER_BY

        async def release(project_id: int) -> None:
            await release_contents(self._database, project_id, before)

        await _each((await Projects(self._database).all()).values(), release)

    async def expire(self) -> None:
        """Delete the rows whose time in Postgres is over, and no change in the streams needs."""
        oldest = await oldest_change(self._redis, self._names)
        delivered_from = datetime.now(UTC)
        if oldest is not None:
            delivered_from = datetime.fromtimestamp(oldest / 1000, UTC)
        for kind, count in (
            await self._expiry.run_once(delivered_from - _CLOCKS_DIFFER_BY)
        ).items():
            metrics.ROWS_EXPIRED.inc(count, kind=kind)


def _due(
    name: str,
    every: timedelta,
    run: Callable[[], Awaitable[None]],
    *,
    first: timedelta = timedelta(),
) -> _Task:
    return _Task(name, every, run, monotonic() + first.total_seconds())


async def _run_if_due(task: _Task) -> None:
    if monotonic() < task.due_at:
        return
    try:
        await task.run()
    except* Exception as failures:  # noqa: BLE001 - failing maintenance must not end the worker
        for error in failures.exceptions:
            reason = str(error) or repr(error)
            log.warning("archive.maintenance_failed", task=task.name, error=reason)
    task.due_at = monotonic() + task.every.total_seconds()


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Work on each item; a failure of one does not affect the others.

    Raises:
        ExceptionGroup: the failures, raised after the work on all items.
    """
    failures: list[Exception] = []
    for item in items:
        try:
            await work(item)
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if failures:
        raise ExceptionGroup("maintenance failed", failures)


@dataclass(frozen=True)
class Archiving:
    """The three loops of the archiver, which end when ``stop`` is set."""

    archiver: Archiver
    housekeeping: Housekeeping
    outbox_relay: OutboxRelay

    async def run(self, stop: asyncio.Event) -> None:
        """Archive, maintain and republish lost events, while no other worker does."""

        def is_active() -> bool:
            return self.archiver.is_active

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.archiver.run(stop))
            tasks.create_task(self.housekeeping.run(stop, is_active))
            tasks.create_task(self.outbox_relay.run(stop, is_active))
