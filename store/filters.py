"""Which chunks a question may see.

Row-level security hides other projects and other agents' private documents; what is built here
adds the question's own conditions. What comes from outside travels as parameters only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import asyncpg

from events.models import Filters
from store.named_queries import named

__all__ = ["Condition", "Visibility"]

_QUERIES = named("filters")


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean in SQL, and the arguments of its parameters; empty where all passes."""

    sql: str
    arguments: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Visibility:
    """What one question may see of a generation.

    Its methods need a connection in a scope of the generation and the asking agent.
    """

    generation_id: int
    filters: Filters

    def of_chunk(self, chunk: str, first_parameter: int, *, one_by_one: bool) -> Condition:
        """Condition on a column that holds a chunk's id.

        ``one_by_one``: for when few chunks are looked at, otherwise for when few pass.
        """
        conditions = self._conditions(first_parameter)
        if not conditions.sql:
            return conditions
        name = "passes" if one_by_one else "is_one_that_passes"
        sql = _QUERIES[name].format(
            generation_id=int(self.generation_id), chunk=chunk, conditions=conditions.sql
        )
        return Condition(sql, conditions.arguments)

    def of_document(self, first_parameter: int) -> Condition:
        """Condition on a row ``d`` of the documents."""
        return self._conditions(first_parameter)

    async def among(self, connection: asyncpg.Connection, chunk_ids: Sequence[int]) -> set[int]:
        """Those of some chunks that exist and may be seen."""
        return set(await self._fetch(connection, "among", chunk_ids))

    async def every(self, connection: asyncpg.Connection) -> list[int]:
        """All chunks that may be seen."""
        return await self._fetch(connection, "every")

    async def _fetch(
        self, connection: asyncpg.Connection, name: str, *arguments: object
    ) -> list[int]:
        conditions = self._conditions(first_parameter=2 + len(arguments))
        if conditions.sql:
            sql = _QUERIES[f"{name}_filtered"].format(conditions=conditions.sql)
        else:
            sql = _QUERIES[name]
        rows = await connection.fetch(sql, self.generation_id, *arguments, *conditions.arguments)
        return [row["id"] for row in rows]

    def _conditions(self, first_parameter: int) -> Condition:
        wanted = list(_wanted(self.filters))
        parts = [
            _QUERIES[name].format(parameter=f"${parameter}")
            for parameter, (name, _) in enumerate(wanted, first_parameter)
        ]
        return Condition(" and ".join(parts), tuple(argument for _, argument in wanted))


def _wanted(filters: Filters) -> Iterator[tuple[str, object]]:
    """Name of each condition that is asked for, with its argument."""
    if filters.kinds:
        yield "kinds", [str(kind) for kind in filters.kinds]
    if filters.collections:
        yield "collections", list(filters.collections)
    if filters.uri_prefix:
        yield "uri_prefix", filters.uri_prefix
    if filters.metadata:
        yield "metadata", json.dumps(dict(filters.metadata))
