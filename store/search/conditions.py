"""Translation of conditions on fields into SQL. Values from outside are parameters only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from content.languages import NAMES, Files
from events.conditions import Where, period
from store.postgres.named_queries import named

__all__ = ["Condition", "Parameters", "language_query", "sql_of"]

_QUERIES = named("filters")
_SIGNS = {"eq": "=", "ne": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_COLUMNS = {"uri": "d.uri", "kind": "d.kind", "title": "d.title"}
_METADATA = "metadata."


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean SQL expression and the arguments of its parameters; empty if everything passes."""

    sql: str
    arguments: tuple[object, ...]


@dataclass(slots=True)
class Parameters:
    """Arguments of a statement, numbered from ``first``."""

    first: int
    arguments: list[object] = field(default_factory=list)

    def sql(self, query: str, *arguments: object, **parts: str) -> str:
        """Fill a query of the family: its parameters with new ones, its other parts with SQL."""
        begin = self.first + len(self.arguments)
        self.arguments += arguments
        numbers = (f"${number}" for number in range(begin, begin + len(arguments)))
        return _QUERIES[query].format(*numbers, **parts)


def sql_of(where: Where, parameters: Parameters, *, of_examples: bool) -> str:
    """Boolean SQL expression on a row ``d`` of documents and a row ``c`` of chunks; never null."""
    for conditions, joint in ((where.and_, " and "), (where.or_, " or ")):
        if conditions is not None:
            parts = [sql_of(part, parameters, of_examples=of_examples) for part in conditions]
            return f"({joint.join(parts)})"
    if where.not_ is not None:
        return f"(not {sql_of(where.not_, parameters, of_examples=of_examples)})"
    return _Leaf(str(where.field), str(where.op), where.value, parameters, of_examples).sql()


def language_query(names: Iterable[str], *, of_examples: bool) -> tuple[str, Sequence[object]]:
    """Name and arguments of the condition that a document or example is in some languages."""
    files = Files.of(names)
    if of_examples:
        return "example_languages", (list(files.spellings),)
    media_types = list(files.media_types), list(files.other_media_types)
    return "languages", (*media_types, files.names, files.first_line)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A condition on one field."""

    field: str
    op: str
    value: Any
    parameters: Parameters
    of_examples: bool

    def sql(self) -> str:
        if self.field in _COLUMNS:
            return self._of_column(_COLUMNS[self.field])
        special = {
            "collection": self._of_collection,
            "language": self._of_language,
            "changed_at": self._of_time,
        }
        return special.get(self.field, self._of_metadata)()

    def _of_column(self, column: str) -> str:
        if self.op == "exists":
            return f"({column} is not null)"
        if self.op == "in":
            return self.parameters.sql("text_in", list(self.value), column=column)
        if self.op == "like":
            return self.parameters.sql("text_like", self.value, column=column)
        return self._all(
            self.parameters.sql("text_order", bound, column=column, sign=_SIGNS[op])
            for op, bound in _ordered(self.op, self.value)
        )

    def _of_collection(self) -> str:
        if self.op == "exists":
            return self.parameters.sql("in_collections")
        if self.op == "like":
            return self.parameters.sql("in_collections_like", self.value)
        names = list(self.value) if self.op == "in" else [self.value]
        is_in = self.parameters.sql("collections", names)
        in_any = self.parameters.sql("in_collections")
        return f"({in_any} and not {is_in})" if self.op == "ne" else is_in

    def _of_language(self) -> str:
        if self.op == "exists":
            return self._has_language()
        is_in = self._languages(self.value if self.op == "in" else (self.value,))
        return f"({self._has_language()} and not {is_in})" if self.op == "ne" else is_in

    def _has_language(self) -> str:
        return "(c.language is not null)" if self.of_examples else self._languages(NAMES)

    def _languages(self, names: Iterable[str]) -> str:
        query, arguments = language_query(names, of_examples=self.of_examples)
        return self.parameters.sql(query, *arguments)

    def _of_time(self) -> str:
        if self.op == "exists":
            return "true"
        equality = self.op in ("eq", "ne", "in")
        parts = [
            self._all(
                self.parameters.sql("changed_at", instant, sign=sign)
                for op, bound in _ordered("eq" if equality else self.op, value)
                for sign, instant in _instants(op, bound)
            )
            for value in (self.value if self.op == "in" else (self.value,))
        ]
        in_any = f"({' or '.join(parts)})"
        return f"(not {in_any})" if self.op == "ne" else in_any

    def _of_metadata(self) -> str:
        key = self.field.removeprefix(_METADATA)
        if self.op == "exists":
            return self.parameters.sql("has_key", key)
        if self.op in ("eq", "ne"):
            is_equal = self.parameters.sql("metadata", json.dumps({key: self.value}))
            if self.op == "eq":
                return is_equal
            return f"({self.parameters.sql('has_key', key)} and not {is_equal})"
        if self.op == "in":
            return self.parameters.sql("metadata_in", key, json.dumps(list(self.value)))
        if self.op == "like":
            return self.parameters.sql("metadata_like", key, self.value)
        return self._all(
            self._compared(key, op, bound) for op, bound in _ordered(self.op, self.value)
        )

    def _compared(self, key: str, op: str, value: Any) -> str:
        if not isinstance(value, str):
            number = json.dumps(value)
            return self.parameters.sql("metadata_number", key, number, sign=_SIGNS[op])
        if period(value) is None:
            return self.parameters.sql("metadata_text", key, value, sign=_SIGNS[op])
        return self._all(
            self.parameters.sql("metadata_time", key, instant, sign=sign)
            for sign, instant in _instants(op, value)
        )

    def _all(self, parts: Iterable[str]) -> str:
        return f"({' and '.join(parts)})"


def _ordered(op: str, value: Any) -> Sequence[tuple[str, Any]]:
    """Comparisons with one value each, of which ``between`` is two."""
    if op == "between":
        return list(zip(("gte", "lte"), value, strict=True))
    return [(op, value)]


def _instants(op: str, text: str) -> Sequence[tuple[str, datetime]]:
    """Comparisons with instants for one with a time, or with a whole day."""
    time = period(text)
    if time is None:
        raise ValueError(f"{text!r} is not a time")
    begin, end = time
    if end is None:
        return [(_SIGNS[op], begin)]
    of_a_day = {
        "eq": [(">=", begin), ("<", end)],
        "gt": [(">=", end)],
        "gte": [(">=", begin)],
        "lt": [("<", begin)],
        "lte": [("<", end)],
    }
    return of_a_day[op]
