"""Visibility of chunks to a query.

Row-level security hides other projects and the private documents of other agents. This module adds
the query's own conditions. Values from outside are passed as SQL parameters only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import asyncpg

from content.signatures import OWNER_MARK, names_in
from events.globs import expression, literal
from events.models import Filters, Kind
from events.names import overlay_suffix
from store.postgres.named_queries import named
from store.search.conditions import Condition, Parameters, language_query, sql_of
from store.search.keyword.tokenizer import definition_expression
from store.search.patterns import Word, phrase_expression, phrase_words, words_of_any
from store.types import ChunkPlace, Subject

__all__ = ["PLANNED_ONCE", "Condition", "Visibility"]

PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan"}
"""Settings for statements without filters. Their best plan is the same for any arguments, but
Postgres would often plan again, which takes up to a third of the time of a statement."""

_QUERIES = named("filters")
_NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class Visibility:
    """The part of a generation that one query may see.

    That is either text or, if the filters name the kind ``code_example``, code examples; the other
    kinds are those of their documents. Conditions do not repeat this choice: the retrievers read
    only the rows of one part.

    ``subject`` is a chunk to leave out, with its document if it names one. ``overlay`` is empty, or
    the suffix of the agents of documents that take the place of others. ``narrowed``: ids of the
    chunks that have all ``words``, or None if they are unknown or many. ``defining``: see
    ``with_definitions``. ``is_covered``: every chunk of the generation has its vector, so that no
    table has to show which have none.

    Its methods need a connection in a scope of the generation and of the agent that searches.
    """

    generation_id: int
    filters: Filters
    subject: Subject | None = None
    ignores_texts: bool = False
    overlay: str = ""
    narrowed: Sequence[int] | None = None
    defining: Sequence[int] = ()
    is_covered: bool = False

    @classmethod
    def to(cls, generation_id: int, agent: str | None, filters: Filters) -> Self:
        """Visibility to an agent, which may be in an overlay."""
        return cls(generation_id, filters, overlay=overlay_suffix(agent))

    def without_texts(self) -> Visibility:
        """The same without phrases, for counts: reading every text would delay each answer."""
        return replace(self, ignores_texts=True)

    @property
    def is_plain(self) -> bool:
        """Return whether there is no filter and no overlay."""
        return not self.overlay and self.filters == _NO_FILTERS

    @property
    def words(self) -> tuple[Word, ...]:
        """Words that each chunk has that passes."""
        of_phrases = (word for phrase in self.filters.phrases for word in phrase_words(phrase))
        return (*of_phrases, *words_of_any(self.defined))

    @property
    def defined(self) -> tuple[str, ...]:
        """Names that the symbols end in, without those of their owners."""
        return tuple(dict.fromkeys(names_in(symbol)[-1] for symbol in self.filters.symbols))

    @property
    def of_examples(self) -> bool:
        """Return whether code examples are searched, instead of text."""
        return Kind.CODE_EXAMPLE in self.filters.kinds

    @property
    def selects_chunks(self) -> bool:
        """Return whether a condition applies to chunks, rather than to whole documents."""
        filters = self.filters
        by_language = filters.languages or (filters.where and "language" in filters.where.fields)
        by_text = not self.ignores_texts and (filters.phrases or filters.without)
        return bool(filters.symbols or by_text or (by_language and self.of_examples))

    def of_chunk(self, chunk: str, first_parameter: int, *, one_by_one: bool) -> Condition:
        """Condition on a column that holds a chunk's id.

        ``one_by_one``: efficient if few chunks are examined; otherwise efficient if few pass.
        """
        narrowing = Parameters(first_parameter)
        parts = []
        if self.narrowed is not None and not one_by_one:
            parts.append(narrowing.sql("is_narrowed", list(self.narrowed), chunk=chunk))
            one_by_one = True
        conditions = replace(self, overlay="")._conditions(first_parameter + len(parts))
        names = ["passes" if one_by_one else "is_one_that_passes"] if conditions.sql else []
        names += ["is_not_overlaid"] if self.overlay else []
        parts += [
            _QUERIES[name].format(
                generation_id=int(self.generation_id), chunk=chunk, conditions=conditions.sql
            )
            for name in names
        ]
        return Condition(" and ".join(parts), (*narrowing.arguments, *conditions.arguments))

    def of_document(self, first_parameter: int) -> Condition:
        """Condition on a row ``d`` of the documents, and a row ``c`` of their chunks."""
        return self._conditions(first_parameter)

    async def among(
        self,
        connection: asyncpg.Connection,
        chunk_ids: Sequence[int],
        described: Sequence[int] = (),
    ) -> dict[int, ChunkPlace]:
        """Places of the chunks among ``chunk_ids`` that exist and are visible, by id.

        Those of ``described`` have the beginning of their text.
        """
        if not chunk_ids:
            return {}
        bare = {name: _QUERIES[name] for name in ("is_bare", "without_vectors")}
        if self.is_covered:
            bare = {"is_bare": "false", "without_vectors": ""}
        ids = map(_array, (chunk_ids, described))
        rows = await self._fetch(connection, "among", *ids, **bare)
        return {row[0]: ChunkPlace(*row[1:]) for row in rows}

    async def with_definitions(
        self, connection: asyncpg.Connection, chunk_ids: Sequence[int]
    ) -> Visibility:
        """The same, where chunks pass that define one of the symbols in their text only.

        A chunk that consists of small units is named after the outermost of them, so its symbol has
        no methods. ``chunk_ids``: chunks that may define a name of ``defined``; only their texts
        are read.
        """
        if not chunk_ids:
            return self
        symbols = [*map(names_in, self.filters.symbols)]
        parameters = Parameters(4)
        parts = [_defined_in_text(names, parameters) for names in symbols]
        rows = await connection.fetch(
            _QUERIES["defining"].format(conditions=" or ".join(parts)),
            self.generation_id,
            _array(chunk_ids),
            _named_as(symbols),
            *parameters.arguments,
        )
        return replace(self, defining=[row["id"] for row in rows])

    async def every(self, connection: asyncpg.Connection) -> list[int]:
        """All visible chunks."""
        if self.narrowed is None:
            rows = await self._fetch(connection, "every")
        else:
            rows = await self._fetch(connection, "every_among", self.narrowed)
        return [row["id"] for row in rows]

    async def in_path_order(self, connection: asyncpg.Connection, most: int) -> list[int]:
        """The first visible chunks of the text, in the order of their uris and lines."""
        arguments: list[object] = [most]
        among = "true"
        if self.narrowed is not None:
            arguments.append(_array(self.narrowed))
            among = _QUERIES["is_among"]
        rows = await self._fetch(connection, "in_path_order", *arguments, among=among)
        return [row["id"] for row in rows]

    async def _fetch(
        self, connection: asyncpg.Connection, name: str, *arguments: object, **parts: str
    ) -> list[asyncpg.Record]:
        conditions = self._conditions(first_parameter=2 + len(arguments))
        sql = _QUERIES[name].format(conditions=conditions.sql or "true", **parts)
        rows: list[asyncpg.Record] = await connection.fetch(
            sql, self.generation_id, *arguments, *conditions.arguments
        )
        return rows

    def _conditions(self, first_parameter: int) -> Condition:
        parameters = Parameters(first_parameter)
        parts = [parameters.sql(name, *arguments) for name, arguments in self._wanted()]
        if self.subject is not None:
            parts.append(parameters.sql("other_chunks", self.subject.chunk_id))
            if self.subject.document_id is not None:
                parts.append(parameters.sql("other_documents", self.subject.document_id))
        if self.filters.where is not None:
            parts.append(sql_of(self.filters.where, parameters, of_examples=self.of_examples))
        return Condition(" and ".join(parts), tuple(parameters.arguments))

    def _wanted(self) -> Iterator[tuple[str, Sequence[object]]]:
        """Name of each requested condition, with its arguments."""
        filters = self.filters
        kinds = [str(kind) for kind in filters.kinds if kind is not Kind.CODE_EXAMPLE]
        if self.overlay:
            yield "not_overlaid", (self.overlay,)
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
            yield language_query(filters.languages, of_examples=self.of_examples)
        if filters.phrases and not self.ignores_texts:
            yield "texts", (list(map(phrase_expression, filters.phrases)),)
        if filters.without and not self.ignores_texts:
            yield "no_texts", (list(map(phrase_expression, filters.without)),)
        if filters.symbols:
            yield "symbols", (_named_as(map(names_in, filters.symbols)), list(self.defining))


def _array(chunk_ids: Sequence[int]) -> str:
    """Array of Postgres as a text."""
    return f"{{{','.join(map(str, chunk_ids))}}}"


def _any_of(expressions: Iterable[str]) -> str:
    return f"(?:{'|'.join(expressions)})"


def _named_as(symbols: Iterable[Sequence[str]]) -> str:
    """Regular expression on symbols, which are names in a list, each after those of its owners."""
    own = _any_of(rf"(?:{OWNER_MARK})".join(map(literal, names)) for names in symbols)
    return rf"(?:^|, |[.:#\\]){own}(?:, |$)"


def _defined_in_text(names: Sequence[str], parameters: Parameters) -> str:
    """SQL: does the text of a chunk define the last name, and is the chunk in its owners?

    The owners are those by the chunk's symbol, or are defined in its text too.
    """
    *owners, name = names
    by_text = parameters.sql("defined_in_text", name, definition_expression(literal(name)))
    if not owners:
        return by_text
    by_symbol = parameters.sql("named_as", _named_as([owners]))
    return f"({by_text} and ({by_symbol} or {_defined_in_text(owners, parameters)}))"
