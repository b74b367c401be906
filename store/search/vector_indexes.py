"""HNSW indexes over a generation's older vectors, built in the background.

A build requires the owner of the table. With the owner's URL, the index is built CONCURRENTLY and
writers are not blocked. Without it, a function of the owner builds the index and blocks writers
(about 0.4 ms for each vector), which suits small installations only. Queries are never blocked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import NamedTuple

import asyncpg
import structlog

from runtime.errors import Unavailable
from store.postgres.connection import connect, explained
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.due_projects import waiting_projects
from store.search.index_builders import (
    BUILD_TIMEOUT_S,
    Build,
    BuildLimits,
    IndexBuilder,
    OwnerBuilder,
    WorkerBuilder,
    of_generation,
)
from store.search.statistics import analyze_tables

__all__ = [
    "ANY_GENERATION",
    "Inflow",
    "Refreshed",
    "VectorIndexes",
    "allowed_tail",
]

log = structlog.get_logger(__name__)

MIN_TAIL = 10_000
"""Number of vectors outside of an index that can be compared one by one at low cost."""

MAX_TAIL_SHARE = 4
"""An index is rebuilt when the vectors outside exceed a fourth of the vectors that it covers."""

OPEN_VECTORS = 100_000
"""From so many vectors on, an index that is built while no import is running has no upper bound:
Postgres inserts later vectors into it. Comparing a fourth of a large project one by one would cost
each question more than that costs a writer, and inserting a fourth costs about as much as building
the graph again. So at most ``MOST_TAIL`` vectors lie outside, however large a project is."""

MOST_TAIL = OPEN_VECTORS // MAX_TAIL_SHARE

UNBOUNDED = 2**63 - 1
"""Watermark of an index without an upper bound."""

IMPORT_VECTORS_PER_S = 500.0
"""Vectors per second. At this rate an index is too small (``MAX_TAIL_SHARE``) once it is built."""

MAX_DEFERRAL_S = 600.0
"""Longest time for which imports of other projects may defer a build."""

CALM_S = 5.0
"""A build is deferred for this long after the last chunk of an import has its vector, because the
next import may follow at once."""

MOST_INDEXES = 40
"""Indexes on one table. Every search of a generation of this table locks them all, so above it the
smallest generations are compared one by one."""

MAX_IMPORT_TAIL = 100_000
"""Number of vectors that an import may leave outside of an index: comparing them takes 0.1 s."""

ANY_GENERATION = 0
"""Lock that every builder holds: two CONCURRENTLY commands on one table may wait for each other,
and Postgres aborts one of them as a deadlock."""

_QUERIES = named("vectors")


class Refreshed(NamedTuple):
    """Numbers of indexes that were built, and of those that have to be built later."""

    built: int
    left: int


class VectorIndexes:
    """Keeps the HNSW indexes of generations up to date."""

    def __init__(
        self,
        database: Database,
        owner_url: str | None,
        exact_chunks: int,
        most_indexes: int = MOST_INDEXES,
        limits: BuildLimits | None = None,
    ) -> None:
        self._most_indexes = most_indexes
        self._limits = limits or BuildLimits()
        self._database = database
        self._owner_url = owner_url
        self._exact_chunks = exact_chunks
        self._inflow = Inflow()
        self._deferred: dict[int, float] = {}
        self._imported_at = -inf

    async def refresh(
        self,
        project_id: int,
        generation_id: int,
        *,
        wait: bool = False,
        after_import: bool = False,
    ) -> Refreshed:
        """Build the indexes that are due in one generation.

        Does nothing if another process builds indexes of this or any other generation; with
        ``wait``, waits for one that builds for another generation. With ``after_import`` (for
        periodic callers), defers the build while vectors arrive at ``IMPORT_VECTORS_PER_S``: a
        build costs several times as much as indexing them, and would have to be repeated. It also
        defers the build, for at most ``MAX_DEFERRAL_S``, while other projects have chunks without
        vectors, because a build takes CPU time from their import.

        A generation that is smaller than ``MOST_INDEXES`` others of its table gets no index, and
        the one that it has is dropped.

        Raises:
            Unavailable: the server cannot be reached, or a lock is held by another session.
        """
        due, left = await self._due(project_id, generation_id, after_import)
        if not due:
            self._deferred.pop(generation_id, None)
            return Refreshed(0, left)
        if after_import and await self._is_deferred(project_id, generation_id):
            return Refreshed(0, left + len(due))
        async with self._builder(generation_id, wait=wait) as builder:
            if builder is None:
                return Refreshed(0, left + len(due))
            built = [await self._build(builder, build) for build in due]
        self._deferred.pop(generation_id, None)
        return Refreshed(sum(built), left)

    async def _is_outgrown(
        self, connection: asyncpg.Connection, generation_id: int, vectors: Mapping[int, int]
    ) -> bool:
        """Return whether there are enough indexes of larger generations on the same table."""
        crowd = await connection.fetch(of_generation(generation_id, "crowd"))
        if len(crowd) < self._most_indexes:
            return False
        return max(vectors.values()) <= int(crowd[-self._most_indexes]["vectors"])

    async def _is_deferred(self, project_id: int, generation_id: int) -> bool:
        now = monotonic()
        if now - self._deferred.setdefault(generation_id, now) >= MAX_DEFERRAL_S:
            return False
        if await waiting_projects(self._database) - {project_id}:
            self._imported_at = now
            return True
        return now - self._imported_at < CALM_S

    async def drop(self, project_id: int, generation_id: int) -> None:
        """Drop every index of one generation, including those that a failed build left behind.

        Raises:
            Unavailable: one of them is being built, or a lock is held by another session.
        """
        scope = project_id, EVERY_AGENT, generation_id
        pattern = f"embeddings\\_hnsw\\_{generation_id}\\_%"
        async with self._database.scope(*scope) as connection:
            rows = await connection.fetch(_QUERIES["other_indexes"], pattern, "")
            if not rows:
                return
            await connection.execute(of_generation(generation_id, "forget_indexes"))
        async with self._builder(generation_id, wait=True) as builder:
            if builder is None:
                raise Unavailable(f"generation {generation_id} is being indexed", "try again later")
            for row in rows:
                await builder.drop(project_id, row["name"])

    async def _due(
        self, project_id: int, generation_id: int, after_import: bool
    ) -> tuple[list[Build], int]:
        """Indexes to be built now, and the number of those that wait for the end of an import."""
        async with self._database.scope(project_id, EVERY_AGENT, generation_id) as connection:
            survey = await connection.fetch(of_generation(generation_id, "survey"))
            vectors = {row["model_id"]: row["tail"] + (row["vectors"] or 0) for row in survey}
            too_long = [row for row in survey if row["tail"] > self._allowed_tail(row["vectors"])]
            has_index = any(row["name"] for row in survey)
            is_outgrown = (too_long or has_index) and await self._is_outgrown(
                connection, generation_id, vectors
            )
            if too_long and not is_outgrown:
                watermark = await connection.fetchval(
                    of_generation(generation_id, "next_watermark")
                )
                filling = await connection.fetchval(_QUERIES["is_filling"], generation_id)
        if is_outgrown and has_index:
            await self.drop(project_id, generation_id)
        inflow = self._inflow.per_second(project_id, generation_id, vectors, monotonic())
        if not too_long or is_outgrown:
            return [], 0
        importing = {
            model_id
            for model_id, rate in inflow.items()
            if after_import and (filling or rate > IMPORT_VECTORS_PER_S)
        }
        due = [
            Build(
                *(project_id, generation_id, model_id, row["dimensions"]),
                UNBOUNDED if is_calm and vectors[model_id] >= OPEN_VECTORS else watermark,
                vectors=vectors[model_id],
            )
            for row in too_long
            for model_id in [row["model_id"]]
            for is_calm in [model_id not in importing]
            if is_calm or row["tail"] > self._allowed_tail(row["vectors"], importing=True)
        ]
        return due, len(too_long) - len(due)

    def _allowed_tail(self, indexed: int | None, *, importing: bool = False) -> int:
        return allowed_tail(indexed, self._exact_chunks, importing=importing)

    async def _build(self, builder: IndexBuilder, build: Build) -> bool:
        """Build an index; return false if another process has built one since the survey."""
        current = await self._current(build)
        if current["tail"] <= self._allowed_tail(current["vectors"]):
            return False
        log.info("vector_index.building", name=build.name)
        await self._drop_others(builder, build, keep=current["name"] or "")
        await builder.build(build)
        async with self._scope(build) as connection:
            await connection.execute(
                of_generation(build.generation_id, "record_index"),
                build.model_id,
                build.name,
                build.watermark,
            )
        await self._drop_others(builder, build, keep=build.name)
        async with self._database.connection() as connection:
            table = await connection.fetchval(of_generation(build.generation_id, "vectors_table"))
        await analyze_tables(self._database, [table])
        log.info("vector_index.built", name=build.name)
        return True

    async def _current(self, build: Build) -> asyncpg.Record:
        async with self._scope(build) as connection:
            survey = await connection.fetch(of_generation(build.generation_id, "survey"))
        return next(row for row in survey if row["model_id"] == build.model_id)

    async def _drop_others(self, builder: IndexBuilder, build: Build, keep: str) -> None:
        async with self._scope(build) as connection:
            others = await connection.fetch(_QUERIES["other_indexes"], build.pattern, keep)
        for row in others:
            await builder.drop(build.project_id, row["name"])

    def _scope(self, build: Build) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._database.scope(build.project_id, EVERY_AGENT, build.generation_id)

    @asynccontextmanager
    async def _builder(
        self, generation_id: int, *, wait: bool = False
    ) -> AsyncIterator[IndexBuilder | None]:
        """Yield a builder while holding both locks; yields None if another process builds."""
        async with self._locks(generation_id, wait=wait) as locked:
            if not locked:
                yield None
            elif self._owner_url is None:
                yield WorkerBuilder(self._database, self._limits)
            else:
                connection = await connect(self._owner_url, command_timeout=BUILD_TIMEOUT_S)
                try:
                    with explained():
                        yield OwnerBuilder(connection, self._limits)
                finally:
                    await connection.close()

    @asynccontextmanager
    async def _locks(self, generation_id: int, *, wait: bool) -> AsyncIterator[bool]:
        """Hold advisory locks outside of any transaction; an open one would delay the build."""
        async with (
            self._database.connection() as connection,
            Lock.VECTOR_INDEX.holding(connection, generation_id) as is_held,
        ):
            if not is_held:
                yield False
                return
            any_generation = Lock.VECTOR_INDEX.holding(connection, ANY_GENERATION, wait=wait)
            async with any_generation as is_alone:
                yield is_alone


def allowed_tail(indexed: int | None, exact_chunks: int, *, importing: bool) -> int:
    """Number of vectors that may lie outside of an index of ``indexed`` ones; None: there is none.

    During an import more of them may, so that an index is not built again and again.
    """
    if importing:
        return max(MAX_IMPORT_TAIL, (indexed or 0) // MAX_TAIL_SHARE)
    if indexed is None:
        return exact_chunks
    return max(min(MIN_TAIL, exact_chunks), min(indexed // MAX_TAIL_SHARE, MOST_TAIL))


@dataclass(frozen=True, slots=True)
class _Look:
    generation_id: int
    at: float
    vectors: Mapping[int, int]


class Inflow:
    """Rates of new vectors since the last check of each project."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def per_second(
        self, project_id: int, generation_id: int, vectors: Mapping[int, int], at: float
    ) -> dict[int, float]:
        """New vectors per second since the last check, by model; 0 at a generation's first check.

        ``vectors``: current number of vectors by model. ``at``: seconds of a monotonic clock.
        """
        now = _Look(generation_id, at, vectors)
        last = self._looks.get(project_id, now)
        self._looks[project_id] = now
        if last.generation_id != generation_id or last.at >= at:
            return dict.fromkeys(vectors, 0.0)
        return {
            model_id: (count - last.vectors.get(model_id, 0)) / (at - last.at)
            for model_id, count in vectors.items()
        }
