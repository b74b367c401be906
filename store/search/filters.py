"""Visibility of chunks to a query.

Row-level security hides other projects and the private documents of other agents. This module adds
the query's own conditions. Values from outside are passed as SQL parameters only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import asyncpg

from content.languages import Files
from events.globs import expression, literal
from events.models import Filters, Kind
from store.postgres.named_queries import named

__all__ = ["Condition", "Visibility"]

_QUERIES = named("filters")


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean SQL expression and the arguments of its parameters; empty if everything passes."""

    sql: str
    arguments: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The part of a generation that one query may see.

    That is either text or, if the filters name the kind ``code_example``, code examples; the other
    kinds are those of their documents. Conditions do not repeat this choice: the retrievers read
    only the rows of one part.

    Its methods need a connection in a scope of the generation and of the agent that searches.
    """

    generation_id: int
    filters: Filters

    @property
    def of_examples(self) -> bool:
        """Return whether code examples are searched, instead of text."""
        return Kind.CODE_EXAMPLE in self.filters.kinds

    @property
    def selects_chunks(self) -> bool:
        """Return whether a condition applies to chunks, rather than to whole documents."""
        return bool(self.filters.symbols or (self.filters.languages and self.of_examples))

    def of_chunk(self, chunk: str, first_parameter: int, *, one_by_one: bool) -> Condition:
        """Condition on a column that holds a chunk's id.

        ``one_by_one``: efficient if few chunks are examined; otherwise efficient if few pass.
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
        """Condition on a row ``d`` of the documents, and a row ``c`` of their chunks."""
        return self._conditions(first_parameter)

    async def among(self, connection: asyncpg.Connection, chunk_ids: Sequence[int]) -> set[int]:
        """Return the chunks among ``chunk_ids`` that exist and are visible."""
        return set(await self._fetch(connection, "among", chunk_ids))

    async def every(self, connection: asyncpg.Connection) -> list[int]:
        """All visible chunks."""
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
        parts: list[str] = []
        arguments: list[object] = []
        for name, values in self._wanted():
            first = first_parameter + len(arguments)
            parameters = (f"${number}" for number in range(first, first + len(values)))
            parts.append(_QUERIES[name].format(*parameters))
            arguments += values
        return Condition(" and ".join(parts), tuple(arguments))

    def _wanted(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        """Name of each requested condition, with its arguments."""
        filters = self.filters
        kinds = [str(kind) for kind in filters.kinds if kind is not Kind.CODE_EXAMPLE]
        if kinds:
            yield "kinds", (kinds,)
        if filters.collections:
            yield "collections", (list(filters.collections),)
        if filters.uri_prefix:
            yield "uri_prefix", (filters.uri_prefix,)
        if filters.metadata:
            yield "metadata", (json.dumps(dict(filters.metadata)),)
        wanted = [glob for glob in filters.path_globs if not glob.startswith("!")]
        unwanted = [glob.removeprefix("!") for glob in filters.path_globs if glob.startswith("!")]
        if wanted:
            yield "paths", (_any_of(map(expression, wanted)),)
        if unwanted:
            yield "no_paths", (_any_of(map(expression, unwanted)),)
        if filters.languages:
            yield self._languages(filters.languages)
        if filters.symbols:
            yield "symbols", (_defining(filters.symbols),)

    def _languages(self, names: Sequence[str]) -> tuple[str, tuple[object, ...]]:
        files = Files.of(names)
        if self.of_examples:
            return "example_languages", (list(files.spellings),)
        media_types = list(files.media_types), list(files.other_media_types)
        return "languages", (*media_types, files.names, files.first_line)


def _any_of(expressions: Iterable[str]) -> str:
    return f"(?:{'|'.join(expressions)})"


def _defining(names: Iterable[str]) -> str:
    """Regular expression on symbols, which are names in a list, each after those of its owners."""
    return rf"(?:^|, |[.:#\\]){_any_of(map(literal, names))}(?:, |$)"
