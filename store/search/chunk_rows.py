"""Rows of chunks, as answers show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import asyncpg

from events.models import Filters
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.search.filters import Visibility
from store.types import ChunkRow

__all__ = ["ROW_COLUMNS", "chunk_row", "decoded", "rows_of", "visible"]

_QUERIES = named("search")
ROW_COLUMNS = _QUERIES["row_columns"]
"""Columns of a row of a chunk ``c`` and its document ``d``, without the chunk's id."""

_NAMES = [field.name for field in fields(ChunkRow)]


async def rows_of(
    connection: asyncpg.Connection,
    generation: Generation,
    agent: str | None,
    chunk_ids: Sequence[int],
) -> dict[int, ChunkRow]:
    """Read the rows of some chunks by id; deleted or invisible chunks are absent."""
    # the retrievers may have seen two versions of a document: this statement sees one
    sql, arguments = visible("rows", generation, agent, first_parameter=3)
    rows = await connection.fetch(sql, generation.id, list(chunk_ids), *arguments)
    return {row["chunk_id"]: chunk_row(row) for row in rows}


def visible(
    query: str, generation: Generation, agent: str | None, *, first_parameter: int
) -> tuple[str, Sequence[object]]:
    """Query without the documents that an overlay of the agent hides, and its last arguments."""
    condition = Visibility.to(generation.id, agent, Filters()).of_document(first_parameter)
    sql = _QUERIES[query].format(columns=ROW_COLUMNS, conditions=condition.sql or "true")
    return sql, condition.arguments


def decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a row, with those of columns of lists and JSON decoded."""
    values = dict(row)
    values["heading_path"] = tuple(values["heading_path"])
    values["locator"] = None if values["locator"] is None else json.loads(values["locator"])
    return values


def chunk_row(row: Mapping[str, Any]) -> ChunkRow:
    """Row of a chunk, of the columns that have the names of its values."""
    values = decoded({name: row[name] for name in _NAMES})
    values["metadata"] = json.loads(values["metadata"])
    return ChunkRow(**values)
