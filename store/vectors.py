"""The vector retriever: finds the chunks whose vectors are nearest to the query's by cosine."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import numpy as np
import numpy.typing as npt

from store.filters import Visibility
from store.named_queries import named
from store.remembering import Recent
from store.types import Vector

__all__ = ["VectorLeg"]

_QUERIES = named("vectors")
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


class VectorLeg:
    """Searches by meaning. One instance per process: it caches the list of indexes for 5 seconds.

    An index that was dropped in that time makes a query slower, but never wrong: a newer index
    covers everything that the older one did.
    """

    def __init__(self, ef_search: int) -> None:
        self._ef_search = ef_search
        self._indexes: Recent[tuple[int, str], _Index] = Recent(_REMEMBERED_S)

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

        Without an index the result is exact. With an index, some of the best may be missing.

        Raises:
            asyncpg.PostgresError: the server failed.
        """
        index = await self._find(connection, generation_id, model)
        if index is None or index.dimensions != len(vector):
            return []
        search = _Search(
            connection, generation_id, index, vector.astype(np.float16), visibility, limit
        )
        if index.watermark is None:
            return await search.exact()
        await connection.execute(
            _QUERIES["settings"], str(max(self._ef_search, limit)), str(_MAX_SCANNED)
        )
        hits = await search.indexed()
        return hits if len(hits) >= limit else await search.exact()

    async def _find(
        self, connection: asyncpg.Connection, generation_id: int, model: str
    ) -> _Index | None:
        remembered = self._indexes.get((generation_id, model))
        if remembered is not None:
            return remembered
        row = await connection.fetchrow(_QUERIES["find_index"], generation_id, model)
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
            "e.chunk_id", first_parameter=3, one_by_one=name == "indexed"
        )
        sql = _QUERIES[name].format(
            generation_id=int(self.generation_id),
            model_id=int(self.index.model_id),
            dimensions=int(self.index.dimensions),
            watermark=int(self.index.watermark or 0),
            visible=f"and {visible.sql}" if visible.sql else "",
        )
        rows = await self.connection.fetch(sql, self.vector, self.limit, *visible.arguments)
        return [(row["chunk_id"], row["similarity"]) for row in rows]
