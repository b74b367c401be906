"""Rows of one generation for an export, read in batches from one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import asyncpg

from runtime.errors import NotFound, UsageError
from store.generations import catalog
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import Database, entering

__all__ = ["BATCH_ROWS", "ExportSnapshot"]

BATCH_ROWS = 4_096
"""Rows in memory at once; of chunks, some 10 MB."""

_QUERIES = named("export")


@dataclass(frozen=True, slots=True)
class ExportSnapshot:
    """A snapshot of one generation that sees the documents of one agent, and the shared ones."""

    connection: asyncpg.Connection
    generation: Generation
    sources: Mapping[str, str]

    @classmethod
    @asynccontextmanager
    async def open(
        cls, database: Database, project_id: int, generation_id: int | None, agent: str = ""
    ) -> AsyncIterator[Self]:
        """Begin the snapshot. Without ``generation_id`` it is that of the live generation.

        ``agent``: empty for shared documents only, ``EVERY_AGENT`` for those of all agents too.

        Raises:
            NotFound: the project has no such generation.
            UsageError: the generation is being built or dropped.
            Unavailable: Postgres cannot be reached, or the connection is lost.
        """
        async with (
            database.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute(entering(project_id, agent, generation_id))
            generation = await _chosen(connection, project_id, generation_id)
            await connection.execute(entering(project_id, agent, generation.id))
            rows = await connection.fetch(_QUERIES["source_names"], project_id)
            yield cls(connection, generation, {row["id"]: row["name"] for row in rows})

    async def documents(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Documents in batches. ``source`` is the name of a document's source, if it has one."""
        async for rows in self._batches("export_documents"):
            for row in rows:
                row["source"] = self.sources.get(row.pop("source_id") or "")
            yield rows

    async def chunks(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Chunks in batches. ``embedding`` is None while a chunk lacks its vector."""
        async for rows in self._batches("export_chunks"):
            yield rows

    async def _batches(self, query: str) -> AsyncIterator[list[dict[str, Any]]]:
        sql = _QUERIES[query].format(generation_id=int(self.generation.id))
        cursor = await self.connection.cursor(sql, self.generation.id)
        while rows := await cursor.fetch(BATCH_ROWS):
            yield [dict(row) for row in rows]


async def _chosen(
    connection: asyncpg.Connection, project_id: int, generation_id: int | None
) -> Generation:
    if generation_id is None:
        return await catalog.live(connection, project_id)
    generation = await catalog.find(connection, project_id, generation_id)
    if generation is None:
        raise NotFound(
            f"the project has no generation {generation_id}", "`headrace replay list` lists all"
        )
    if generation.state not in {"live", "former"}:
        raise UsageError(
            f"generation {generation_id} is {generation.state}, so it is not complete",
            "export the live one, or wait for its replay",
        )
    return generation
