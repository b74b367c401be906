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

__all__ = ["ANY_GENERATION", "Inflow", "Refreshed", "VectorIndexes"]

log = structlog.get_logger(__name__)

MIN_TAIL = 10_000
"""Number of vectors outside of an index that can be compared one by one at low cost."""

MAX_TAIL_SHARE = 4
"""An index is rebuilt when the vectors outside exceed a fourth of the vectors that it covers."""

IMPORT_VECTORS_PER_S = 500.0
"""Vectors per second. At this rate an index is too small (``MAX_TAIL_SHARE``) once it is built."""

MAX_DEFERRAL_S = 600.0
"""Longest time for which imports of other projects may defer a build."""

CALM_S = 5.0
"""A build is deferred for this long after the last chunk of an import has its vector, because the
next import may follow at once."""

FEW_VECTORS = 20_000
"""Up to so many vectors, the nearest are also found in a graph that was built with less search."""

BREADTH, BREADTH_FOR_FEW = 100, 64
"""Candidates for the neighbours of a vector while the graph is built (``ef_construction``)."""

NEIGHBOURS, NEIGHBOURS_FOR_FEW = 16, 12
"""Neighbours of a vector on each layer of the graph (``m``)."""

MOST_INDEXES = 40
"""Indexes on one table. Every search of a generation of this table locks them all, so above it the
smallest generations are compared one by one."""

MAX_IMPORT_TAIL = 100_000
"""Number of vectors that an import may leave outside of an index: comparing them takes 0.1 s."""

ANY_GENERATION = 0
"""Lock that every builder holds: two CONCURRENTLY commands on one table may wait for each other,
and Postgres aborts one of them as a deadlock."""

_BUILD_TIMEOUT_S = 6 * 3600.0
_LOCK_TIMEOUT = "3s"
_QUERIES = named("vectors")


@dataclass(frozen=True, slots=True)
class _Build:
    """An index to be built."""

    project_id: int
    generation_id: int
    model_id: int
    dimensions: int
    watermark: int
    vectors: int

    @property
    def breadth(self) -> int:
        """Number of candidates for the neighbours of a vector."""
        return BREADTH_FOR_FEW if self.vectors <= FEW_VECTORS else BREADTH

    @property
    def neighbours(self) -> int:
        """Number of neighbours of a vector on each layer of the graph."""
        return NEIGHBOURS_FOR_FEW if self.vectors <= FEW_VECTORS else NEIGHBOURS

    @property
    def name(self) -> str:
        return f"embeddings_hnsw_{self.generation_id}_{self.model_id}_{self.watermark}"

    @property
    def pattern(self) -> str:
        """LIKE pattern of all indexes of this generation and model."""
        return f"embeddings\\_hnsw\\_{self.generation_id}\\_{self.model_id}\\_%"


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
    ) -> None:
        self._most_indexes = most_indexes
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
            for build in due:
                await self._build(builder, build)
        self._deferred.pop(generation_id, None)
        return Refreshed(len(due), left)

    async def _is_outgrown(
        self, connection: asyncpg.Connection, generation_id: int, vectors: Mapping[int, int]
    ) -> bool:
        """Return whether there are enough indexes of larger generations on the same table."""
        crowd = await connection.fetch(_of(generation_id, "crowd"))
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
            await connection.execute(_of(generation_id, "forget_indexes"))
        async with self._builder(generation_id, wait=True) as builder:
            if builder is None:
                raise Unavailable(f"generation {generation_id} is being indexed", "try again later")
            for row in rows:
                await builder.drop(project_id, row["name"])

    async def _due(
        self, project_id: int, generation_id: int, after_import: bool
    ) -> tuple[list[_Build], int]:
        """Indexes to be built now, and the number of those that wait for the end of an import."""
        async with self._database.scope(project_id, EVERY_AGENT, generation_id) as connection:
            survey = await connection.fetch(_of(generation_id, "survey"))
            vectors = {row["model_id"]: row["tail"] + (row["vectors"] or 0) for row in survey}
            too_long = [row for row in survey if row["tail"] > self._allowed_tail(row["vectors"])]
            has_index = any(row["name"] for row in survey)
            is_outgrown = (too_long or has_index) and await self._is_outgrown(
                connection, generation_id, vectors
            )
            if too_long and not is_outgrown:
                watermark = await connection.fetchval(_of(generation_id, "next_watermark"))
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
            _Build(
                *(project_id, generation_id, row["model_id"], row["dimensions"], watermark),
                vectors=vectors[row["model_id"]],
            )
            for row in too_long
            if row["model_id"] not in importing or row["tail"] > MAX_IMPORT_TAIL
        ]
        return due, len(too_long) - len(due)

    def _allowed_tail(self, indexed: int | None) -> int:
        if indexed is None:
            return self._exact_chunks
        return max(min(MIN_TAIL, self._exact_chunks), indexed // MAX_TAIL_SHARE)

    async def _build(self, builder: _Builder, build: _Build) -> None:
        log.info("vector_index.building", name=build.name)
        await self._drop_others(builder, build, keep=await self._current(build))
        await builder.build(build)
        async with self._scope(build) as connection:
            await connection.execute(
                _of(build.generation_id, "record_index"),
                build.model_id,
                build.name,
                build.watermark,
            )
        await self._drop_others(builder, build, keep=build.name)
        log.info("vector_index.built", name=build.name)

    async def _current(self, build: _Build) -> str:
        async with self._scope(build) as connection:
            survey = await connection.fetch(_of(build.generation_id, "survey"))
        return next(row["name"] or "" for row in survey if row["model_id"] == build.model_id)

    async def _drop_others(self, builder: _Builder, build: _Build, keep: str) -> None:
        async with self._scope(build) as connection:
            others = await connection.fetch(_QUERIES["other_indexes"], build.pattern, keep)
        for row in others:
            await builder.drop(build.project_id, row["name"])

    def _scope(self, build: _Build) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._database.scope(build.project_id, EVERY_AGENT, build.generation_id)

    @asynccontextmanager
    async def _builder(
        self, generation_id: int, *, wait: bool = False
    ) -> AsyncIterator[_Builder | None]:
        """Yield a builder while holding both locks; yields None if another process builds."""
        async with self._locks(generation_id, wait=wait) as locked:
            if not locked:
                yield None
            elif self._owner_url is None:
                yield _WorkerBuilder(self._database)
            else:
                connection = await connect(self._owner_url, command_timeout=_BUILD_TIMEOUT_S)
                try:
                    with explained():
                        yield _OwnerBuilder(connection)
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


def _of(generation_id: int, name: str) -> str:
    """Statement that names its generation by a literal: it opens one partition only."""
    return _QUERIES[name].format(generation_id=int(generation_id))


class _Builder:
    """Builds and drops indexes."""

    async def build(self, build: _Build) -> None:
        raise NotImplementedError

    async def drop(self, project_id: int, name: str) -> None:
        raise NotImplementedError


class _OwnerBuilder(_Builder):
    """Builds as the owner of the table, which blocks no other session."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def build(self, build: _Build) -> None:
        await self._connection.execute(_QUERIES["build_memory"])
        table = await self._connection.fetchval(_of(build.generation_id, "vectors_table"))
        await self._connection.execute(
            _QUERIES["build_concurrently"].format(
                name=build.name,
                table=table,
                dimensions=int(build.dimensions),
                generation_id=int(build.generation_id),
                model_id=int(build.model_id),
                watermark=int(build.watermark),
                breadth=int(build.breadth),
                neighbours=int(build.neighbours),
            )
        )

    async def drop(self, project_id: int, name: str) -> None:
        del project_id
        await self._connection.execute(_QUERIES["drop_concurrently"].format(name=name))


class _WorkerBuilder(_Builder):
    """Builds as a worker, through functions of the owner; writers wait during a build."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def build(self, build: _Build) -> None:
        async with self._database.scope(build.project_id, EVERY_AGENT) as connection:
            await connection.execute(_QUERIES["build_memory_here"], _LOCK_TIMEOUT)
            await connection.execute(
                _QUERIES["build_as_worker"],
                build.name,
                build.generation_id,
                build.model_id,
                build.dimensions,
                build.watermark,
                build.breadth,
                build.neighbours,
                timeout=_BUILD_TIMEOUT_S,
            )

    async def drop(self, project_id: int, name: str) -> None:
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            await connection.execute(_QUERIES["build_memory_here"], _LOCK_TIMEOUT)
            await connection.execute(_QUERIES["drop_as_worker"], name)


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
