"""Share of a generation's chunks that a query's vectors can be compared with."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg
import numpy as np
import numpy.typing as npt

from runtime.errors import ConfigurationError
from store.filters import Visibility
from store.named_queries import named
from store.remembering import Recent

__all__ = ["Coverage", "StoredModels"]

_QUERIES = named("search")
_PENDING = named("pending")
_ALL_SECONDS = 30.0
_BARE_SECONDS = 1.0

Key = tuple[int, str, str]
"""Generation, agent and filters."""
_FRESH_SECONDS = 15.0

Vectors = Mapping[str, npt.NDArray[np.float32]]
Widths = Mapping[str, int]


class StoredModels:
    """Models that embedded a generation, cached for 15 seconds."""

    def __init__(self) -> None:
        self._known: Recent[int, Widths] = Recent(_FRESH_SECONDS)

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
                f"{_list({name: len(vector) for name, vector in vectors.items()})}: "
                "set HEADRACE_MODEL_DIMENSIONS to the width of the project, or embed its documents "
                f"again (`headrace replay --project {project} --model NAME`)"
            )
        return unlike

    async def _widths(self, connection: asyncpg.Connection, generation_id: int) -> Widths:
        widths = self._known.get(generation_id)
        if widths is None:
            rows = await connection.fetch(_QUERIES["embedded_by"], generation_id)
            widths = {row["name"]: row["dimensions"] for row in rows}
            if widths:
                self._known.put(generation_id, widths)
        return widths


class Coverage:
    """Share of the chunks that have a vector, while others have none.

    The count of all chunks is cached for half a minute, that of the chunks without a vector for a
    second.
    """

    def __init__(self) -> None:
        self._all: Recent[Key, int] = Recent(_ALL_SECONDS)
        self._bare: Recent[Key, int] = Recent(_BARE_SECONDS)

    async def share(
        self, connection: asyncpg.Connection, visibility: Visibility, agent: str | None
    ) -> float:
        """Share (0 to 1) of the chunks that pass the filters, in the connection's scope."""
        generation_id = visibility.generation_id
        if await connection.fetchval(_PENDING["is_covered"], generation_id):
            return 1.0
        key = generation_id, agent or "", visibility.filters.model_dump_json()
        bare = await _counted(self._bare, key, connection, visibility, "count_bare")
        total = await _counted(self._all, key, connection, visibility, "count_chunks")
        if total < bare:  # counted before an import began
            total = await _count(connection, visibility, "count_chunks")
            self._all.put(key, total)
        return 1.0 - bare / total if total else 1.0


async def _counted(
    memory: Recent[Key, int],
    key: Key,
    connection: asyncpg.Connection,
    visibility: Visibility,
    query: str,
) -> int:
    number = memory.get(key)
    if number is None:
        number = await _count(connection, visibility, query)
        memory.put(key, number)
    return number


async def _count(connection: asyncpg.Connection, visibility: Visibility, query: str) -> int:
    condition = visibility.of_document(first_parameter=2)
    if condition.sql:
        name = {"count_bare": "count_bare_filtered", "count_chunks": "count_filtered"}[query]
        sql = _PENDING[name].format(conditions=condition.sql)
    else:
        sql = _PENDING[query]
    number: int = await connection.fetchval(sql, visibility.generation_id, *condition.arguments)
    return number


def _list(widths: Widths) -> str:
    return ", ".join(f"{name} ({width} wide)" for name, width in sorted(widths.items()))
