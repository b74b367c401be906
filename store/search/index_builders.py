"""Builders of HNSW indexes: the owner of the table, or a worker through functions of the owner."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = [
    "BUILD_TIMEOUT_S",
    "Build",
    "BuildLimits",
    "IndexBuilder",
    "OwnerBuilder",
    "WorkerBuilder",
    "of_generation",
]

FEW_VECTORS = 20_000
"""Up to so many vectors, the nearest are also found in a graph that was built with less search."""

BREADTH, BREADTH_FOR_FEW = 100, 64
"""Candidates for the neighbours of a vector while the graph is built (``ef_construction``)."""

NEIGHBOURS, NEIGHBOURS_FOR_FEW = 16, 12
"""Neighbours of a vector on each layer of the graph (``m``)."""

PARALLEL_VECTORS = 100_000
"""From so many vectors on, parallel workers help to build a graph, if the settings allow any."""

_LEAST_BUILD_BYTES = 64 * 2**20
_GRAPH_BYTES = 700
"""Memory of a vector in a graph that is being built, besides the vector itself."""

BUILD_TIMEOUT_S = 6 * 3600.0
_LOCK_TIMEOUT = "3s"
_QUERIES = named("vectors")


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """Most memory of Postgres for one build, and parallel workers for a large one."""

    memory_bytes: int = 2**30
    processes: int = 0


@dataclass(frozen=True, slots=True)
class Build:
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

    def memory(self, limits: BuildLimits) -> str:
        """Memory that the graph needs, within the limits, for ``maintenance_work_mem``."""
        graph_bytes = self.vectors * (2 * self.dimensions + _GRAPH_BYTES)
        return f"{min(max(graph_bytes, _LEAST_BUILD_BYTES), limits.memory_bytes) // 1024}kB"

    def processes(self, limits: BuildLimits) -> str:
        """Number of parallel workers. They need shared memory, of which containers have little."""
        return str(limits.processes if self.vectors >= PARALLEL_VECTORS else 0)

    @property
    def neighbours(self) -> int:
        """Number of neighbours of a vector on each layer of the graph."""
        return NEIGHBOURS_FOR_FEW if self.vectors <= FEW_VECTORS else NEIGHBOURS

    @property
    def name(self) -> str:
        """Name of the index."""
        return f"embeddings_hnsw_{self.generation_id}_{self.model_id}_{self.watermark}"

    @property
    def pattern(self) -> str:
        """LIKE pattern of all indexes of this generation and model."""
        return f"embeddings\\_hnsw\\_{self.generation_id}\\_{self.model_id}\\_%"


def of_generation(generation_id: int, name: str) -> str:
    """Statement that names its generation by a literal: it opens one partition only."""
    return _QUERIES[name].format(generation_id=int(generation_id))


class IndexBuilder:
    """Builds and drops indexes."""

    async def build(self, build: Build) -> None:
        """Build an index."""
        raise NotImplementedError

    async def drop(self, project_id: int, name: str) -> None:
        """Drop an index of a project, if it exists."""
        raise NotImplementedError


class OwnerBuilder(IndexBuilder):
    """Builds as the owner of the table, which blocks no other session."""

    def __init__(self, connection: asyncpg.Connection, limits: BuildLimits) -> None:
        self._connection = connection
        self._limits = limits

    async def build(self, build: Build) -> None:
        """Build CONCURRENTLY."""
        await self._connection.execute(
            _QUERIES["build_memory"], build.memory(self._limits), build.processes(self._limits)
        )
        table = await self._connection.fetchval(of_generation(build.generation_id, "vectors_table"))
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
        """Drop CONCURRENTLY."""
        del project_id
        await self._connection.execute(_QUERIES["drop_concurrently"].format(name=name))


class WorkerBuilder(IndexBuilder):
    """Builds as a worker, through functions of the owner; writers wait during a build."""

    def __init__(self, database: Database, limits: BuildLimits) -> None:
        self._database = database
        self._limits = limits

    async def build(self, build: Build) -> None:
        """Build by a function of the owner, or give up if a lock is held."""
        async with self._database.scope(build.project_id, EVERY_AGENT) as connection:
            await connection.execute(_QUERIES["lock_timeout"], _LOCK_TIMEOUT)
            await connection.execute(
                _QUERIES["build_memory_here"],
                build.memory(self._limits),
                build.processes(self._limits),
            )
            await connection.execute(
                _QUERIES["build_as_worker"],
                build.name,
                build.generation_id,
                build.model_id,
                build.dimensions,
                build.watermark,
                build.breadth,
                build.neighbours,
                timeout=BUILD_TIMEOUT_S,
            )

    async def drop(self, project_id: int, name: str) -> None:
        """Drop by a function of the owner, or give up if a lock is held."""
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            await connection.execute(_QUERIES["lock_timeout"], _LOCK_TIMEOUT)
            await connection.execute(_QUERIES["drop_as_worker"], name)
