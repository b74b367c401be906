"""The vector retriever: finds the chunks whose vectors are nearest to the query's by cosine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

import asyncpg
import numpy as np
import numpy.typing as npt
import structlog

from runtime.errors import ConfigurationError, HeadraceError
from runtime.intervals import TTLCache
from store.postgres.named_queries import named
from store.search.filters import Visibility
from store.types import Vector

__all__ = ["FAILURES", "Coverage", "IndexState", "StoredModels", "VectorRetriever"]

log = structlog.get_logger(__name__)

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, HeadraceError)
"""Errors of a server; a search goes on without the part that failed."""

_RETRIEVAL = named("vectors")
_REMEMBERED_S = 5.0
_MAX_SCANNED = 2_000
"""Number of nearest vectors that the index scan examines. If too few of them pass the filters, all
vectors that pass are compared instead, which is cheaper than scanning further."""


@dataclass(frozen=True, slots=True)
class _Index:
    """A generation's vectors of one model. ``watermark`` is None if they have no index."""

    model_id: int
    dimensions: int
    watermark: int | None


class VectorRetriever:
    """Searches by meaning. One instance per process: it caches the list of indexes for 5 seconds.

    An index that was dropped in that time makes a query slower, but never wrong: a newer index
    covers everything that the older one did.
    """

    def __init__(self, ef_search: int) -> None:
        self._ef_search = ef_search
        self._indexes: TTLCache[tuple[int, str], _Index] = TTLCache(_REMEMBERED_S)

    def settings(self, limit: int) -> dict[str, int | str]:
        """Settings of Postgres for a search by an index, which continues while filters leave few.

        A search without them finds fewer chunks.
        """
        return {
            "hnsw.ef_search": max(self._ef_search, limit),
            "hnsw.iterative_scan": "relaxed_order",
            "hnsw.max_scan_tuples": _MAX_SCANNED,
        }

    async def search(
        self,
        connection: asyncpg.Connection,
        generation_id: int,
        model: str,
        vector: npt.NDArray[np.float32],
        visibility: Visibility,
        limit: int,
    ) -> list[tuple[int, float]]:
        """Ids of visible chunks with their cosine similarity, best first.

        Without an index the result is exact. With an index, some of the best may be missing. The
        connection needs the ``settings`` of the limit.

        Raises:
            asyncpg.PostgresError: the server failed.
        """
        index = await self._find(connection, generation_id, model)
        if index is None or index.dimensions != len(vector):
            return []
        search = _Search(
            connection, generation_id, index, vector.astype(np.float16), visibility, limit
        )
        narrowed = visibility.narrowed
        if index.watermark is None or (narrowed is not None and len(narrowed) <= _MAX_SCANNED):
            return await search.exact()
        hits = await search.indexed()
        return hits if len(hits) >= limit else await search.exact()

    async def compare(
        self,
        connection: asyncpg.Connection,
        generation_id: int,
        model: str,
        vector: npt.NDArray[np.float32],
        chunk_ids: Sequence[int],
    ) -> dict[int, float]:
        """Cosine similarity of some chunks by id; a chunk without a vector of the model is absent.

        Raises:
            asyncpg.PostgresError: the server failed.
        """
        index = await self._find(connection, generation_id, model)
        if index is None or index.dimensions != len(vector):
            return {}
        sql = _RETRIEVAL["compared"].format(
            generation_id=int(generation_id),
            model_id=int(index.model_id),
            dimensions=int(index.dimensions),
        )
        rows = await connection.fetch(sql, vector.astype(np.float16), list(chunk_ids))
        return {row["chunk_id"]: row["similarity"] for row in rows}

    async def _find(
        self, connection: asyncpg.Connection, generation_id: int, model: str
    ) -> _Index | None:
        cached = self._indexes.get((generation_id, model))
        if cached is not None:
            return cached
        row = await connection.fetchrow(_RETRIEVAL["find_index"], generation_id, model)
        if row is None or row["dimensions"] is None:
            return None  # not cached: the first vector may arrive at any moment
        index = _Index(row["model_id"], row["dimensions"], row["watermark"])
        self._indexes.put((generation_id, model), index)
        return index


@dataclass(frozen=True, slots=True)
class _Search:
    connection: asyncpg.Connection
    generation_id: int
    index: _Index
    vector: Vector
    visibility: Visibility
    limit: int

    async def exact(self) -> list[tuple[int, float]]:
        return await self._run("exact")

    async def indexed(self) -> list[tuple[int, float]]:
        return await self._run("indexed")

    async def _run(self, name: str) -> list[tuple[int, float]]:
        visible = self.visibility.of_chunk(
            "e.chunk_id", first_parameter=2, one_by_one=name == "indexed"
        )
        sql = _RETRIEVAL[name].format(
            generation_id=int(self.generation_id),
            model_id=int(self.index.model_id),
            dimensions=int(self.index.dimensions),
            watermark=int(self.index.watermark or 0),
            is_example=str(self.visibility.of_examples).lower(),
            visible=f"and {visible.sql}" if visible.sql else "",
            limit=int(self.limit),
        )
        rows = await self.connection.fetch(sql, self.vector, *visible.arguments)
        return [(row["chunk_id"], row["similarity"]) for row in rows]


_COVERAGE = named("search")
_PENDING = named("pending")
_ALL_SECONDS = 30.0
_FORMER_SECONDS = 600.0
_BARE_SECONDS = 1.0

Key = tuple[int, str, str]
"""Generation, agent and filters."""
_FRESH_SECONDS = 15.0

Vectors = Mapping[str, npt.NDArray[np.float32]]
Widths = Mapping[str, int]
Scoped = Callable[[], AbstractAsyncContextManager[asyncpg.Connection]]


class StoredModels:
    """Models that embedded a generation, cached for 15 seconds."""

    def __init__(self) -> None:
        self._cache: TTLCache[int, Widths] = TTLCache(_FRESH_SECONDS)

    async def unreached(
        self, connection: asyncpg.Connection, project: str, generation_id: int, vectors: Vectors
    ) -> list[str]:
        """Models with stored vectors that a query with ``vectors`` cannot be compared with.

        Raises:
            ConfigurationError: it cannot be compared with any: a model changed its width.
        """
        stored = await self._widths(connection, generation_id)
        unlike = [
            name
            for name, width in stored.items()
            if name not in vectors or len(vectors[name]) != width
        ]
        if unlike and len(unlike) == len(stored):
            raise ConfigurationError(
                f"project {project} was embedded by {_list(stored)}, but the query by "
                f"{_list({name: len(vector) for name, vector in vectors.items()})}",
                "set HEADRACE_MODEL_DIMENSIONS to the width of the project, or embed its documents "
                f"again (`headrace replay --project {project} --model NAME`)",
            )
        return unlike

    async def _widths(self, connection: asyncpg.Connection, generation_id: int) -> Widths:
        widths = self._cache.get(generation_id)
        if widths is None:
            rows = await connection.fetch(
                _COVERAGE["embedded_by"].format(generation_id=int(generation_id))
            )
            widths = {row["name"]: row["dimensions"] for row in rows}
            if widths:
                self._cache.put(generation_id, widths)
        return widths


@dataclass(frozen=True, slots=True)
class Counting:
    """A count of chunks: the former number, and the task that counts again, if there are any."""

    former: int | None
    task: asyncio.Task[int | None] | None

    async def number(self) -> int | None:
        """Return the number, or None if the server failed.

        It waits for the task only if there is no former number.
        """
        if self.task is None or (self.former is not None and not self.task.done()):
            return self.former
        number = await asyncio.shield(self.task)
        return self.former if number is None else number


class IndexState(NamedTuple):
    """State of a generation: is it live, and which share (0 to 1) of its chunks has a vector?

    ``is_covered``: all of its chunks have one, also those that do not pass the filters.
    """

    is_live: bool = True
    coverage: float = 1.0
    is_covered: bool = False


class Coverage:
    """Number of chunks in the scope of a search, and the share of those that have a vector.

    The count of all chunks is cached for half a minute, that of the chunks without a vector for a
    second. The former count of all chunks is kept for ten minutes, for searches that end before the
    next one.
    """

    def __init__(self) -> None:
        self._all: TTLCache[Key, int] = TTLCache(_ALL_SECONDS)
        self._former: TTLCache[Key, int] = TTLCache(_FORMER_SECONDS)
        self._bare: TTLCache[Key, int] = TTLCache(_BARE_SECONDS)
        self._tasks: dict[Key, asyncio.Task[int | None]] = {}

    async def state(
        self,
        connection: asyncpg.Connection,
        visibility: Visibility,
        agent: str | None,
        known: tuple[bool, bool] | None = None,
    ) -> IndexState:
        """State of the generation, and of the chunks that pass the filters, in a scope.

        ``known``: whether the generation is live, and whether it is covered, if that was read.
        """
        is_live, is_covered = known or await connection.fetchrow(
            _PENDING["state"], visibility.generation_id
        )
        coverage = 1.0 if is_covered else await self._share(connection, visibility, agent)
        return IndexState(is_live, coverage, is_covered)

    async def _share(
        self, connection: asyncpg.Connection, visibility: Visibility, agent: str | None
    ) -> float:
        visibility = visibility.without_texts()
        key = _key(visibility, agent)
        bare = self._bare.get(key)
        if bare is None:
            bare = await _count_bare(connection, visibility)
            self._bare.put(key, bare)
        total = self._all.get(key)
        if total is None or total < bare:  # counted before an import began
            total = await self._count(connection, visibility, key)
        return 1.0 - bare / total if total else 1.0

    def counting(self, scope: Scoped, visibility: Visibility, agent: str | None) -> Counting:
        """Begin to count the chunks that pass the filters, unless a count is cached, or runs.

        ``scope`` opens a connection in the scope of the search.
        """
        visibility = visibility.without_texts()
        key = _key(visibility, agent)
        number = self._all.get(key)
        if number is not None:
            return Counting(number, None)
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(self._counted(scope, visibility, key))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return Counting(self._former.get(key), task)

    async def _counted(self, scope: Scoped, visibility: Visibility, key: Key) -> int | None:
        try:
            async with scope() as connection:
                return await self._count(connection, visibility, key)
        except FAILURES as error:
            log.warning("search.not_counted", error=repr(error))
            return None

    async def _count(self, connection: asyncpg.Connection, visibility: Visibility, key: Key) -> int:
        """Number of chunks of the text, or of code examples, in the connection's scope."""
        condition = visibility.of_document(first_parameter=2)
        name = "count_chosen" if visibility.selects_chunks else "count_texts"
        name = "count_examples" if visibility.of_examples else name
        sql = _PENDING[name].format(conditions=condition.sql or "true")
        number: int = await connection.fetchval(sql, visibility.generation_id, *condition.arguments)
        self._all.put(key, number)
        self._former.put(key, number)
        return number


def _key(visibility: Visibility, agent: str | None) -> Key:
    return visibility.generation_id, agent or "", visibility.filters.model_dump_json()


async def _count_bare(connection: asyncpg.Connection, visibility: Visibility) -> int:
    """Number of these chunks that have no vector."""
    condition = visibility.of_document(first_parameter=2)
    arguments = visibility.generation_id, *condition.arguments
    sql = _PENDING["count_bare_examples"].format(conditions=condition.sql or "true")
    examples: int = await connection.fetchval(sql, *arguments)
    if visibility.of_examples:
        return examples
    if condition.sql:
        name = "count_bare_chosen" if visibility.selects_chunks else "count_bare_filtered"
        sql = _PENDING[name].format(conditions=condition.sql)
    else:
        sql = _PENDING["count_bare"]
    number: int = await connection.fetchval(sql, *arguments)
    return max(number - examples, 0)


def _list(widths: Widths) -> str:
    return ", ".join(f"{name} ({width} wide)" for name, width in sorted(widths.items()))
