"""Upkeep of the index in the background: segments folded, words sorted in, vector indexes built.

Any number of workers may run it at once: an advisory lock per project lets one of them work.
Questions and writers never wait for it, but for one case that ``store.vector_indexes`` names.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic

import asyncpg
import structlog

from store.database import EVERY_AGENT, Database
from store.keyword.merging import (
    find_wasteful,
    list_sizes,
    merge_segments,
    plan_merges,
    sort_words,
)
from store.named_queries import named
from store.projects import Projects
from store.vector_indexes import VectorIndexes

__all__ = ["EXACT_CHUNKS", "Maintenance"]

log = structlog.get_logger(__name__)

EXACT_CHUNKS = 10_000
INTERVAL = timedelta(seconds=2)
SWEEP_INTERVAL = timedelta(minutes=5)
_LOCK_SPACE = 0x48444B57
_QUERIES = named("maintenance")


class Maintenance:
    """Keeps every project quick to search.

    ``owner_url`` belongs to the owner of the tables; without it, building a vector index makes
    writers wait. ``exact_chunks``: up to so many vectors, a project gets no index.
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
        self._projects = Projects(database)
        self._indexes = VectorIndexes(database, owner_url, exact_chunks)
        self._interval = interval
        self._sweep_interval = sweep_interval
        self._swept_at: dict[int, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; what fails is logged and tried again at the next turn."""
        while not stop.is_set():
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - no worker shall end for want of upkeep
                log.warning("maintenance.failed", error=repr(error))
            await _sleep(stop, self._interval)

    async def run_once(self) -> None:
        """Do all that is due in every project; one that fails keeps no other from its turn.

        Raises:
            ExceptionGroup: what failed, once all have had their turn.
        """
        await self._analyze()
        failures: list[Exception] = []
        for project_id in (await self._projects.all()).values():
            try:
                await self.tidy_keywords(project_id)
                await self._indexes.refresh(project_id)
            except Exception as error:  # noqa: BLE001 - handed on below
                failures.append(error)
        if failures:
            raise ExceptionGroup("upkeep failed", failures)

    async def _analyze(self) -> None:
        async with self._database.connection() as connection:
            if await connection.fetchval(_QUERIES["has_new_tables"]):
                await connection.execute(_QUERIES["analyze_new_tables"])

    async def tidy_keywords(self, project_id: int) -> None:
        """Fold a project's segments and sort in its words, each step in a transaction."""
        while await self._fold(project_id):
            pass
        if self._sweep_is_due(project_id):
            await self._sweep(project_id)

    async def _fold(self, project_id: int) -> bool:
        """One transaction's worth of work; false: nothing is due, or another worker is at it."""
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            if not await _lock(connection, project_id):
                return False
            sorted_in = await sort_words(connection, project_id)
            groups = plan_merges(await list_sizes(connection, project_id))
            if groups:
                await merge_segments(connection, project_id, groups[0])
        return sorted_in or bool(groups)

    async def _sweep(self, project_id: int) -> None:
        """Rewrite the segments that hold too many dead chunks."""
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            if not await _lock(connection, project_id):
                return
            for segment_id in await find_wasteful(connection, project_id):
                await merge_segments(connection, project_id, [segment_id])

    def _sweep_is_due(self, project_id: int) -> bool:
        now = monotonic()
        due = now - self._swept_at.get(project_id, now) >= self._sweep_interval.total_seconds()
        if due or project_id not in self._swept_at:
            self._swept_at[project_id] = now
        return due


async def _lock(connection: asyncpg.Connection, project_id: int) -> bool:
    """The project's maintenance lock until the transaction ends; false: another has it."""
    return bool(await connection.fetchval(_QUERIES["try_lock"], _LOCK_SPACE, project_id))


async def _sleep(stop: asyncio.Event, interval: timedelta) -> None:
    try:
        async with asyncio.timeout(interval.total_seconds()):
            await stop.wait()
    except TimeoutError:
        return
