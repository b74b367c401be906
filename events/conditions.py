"""Conditions with operators on fields of documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from content import languages
from events.condition_text import parsed
from events.fields import DOCUMENT_KINDS, SCALAR_WORDS, Data, OneProblem, Scalar, Text
from runtime import protocol_limits

__all__ = ["ORDERED", "Period", "Where", "WhereOrText", "period"]

ORDERED = ("gt", "gte", "lt", "lte", "between")
"""Operators that compare by order."""

_LISTED = ("in", "between")
_EXACT = ("eq", "ne", "in", "exists")
_OPERATORS_OF = {
    "kind": _EXACT,
    "language": _EXACT,
    "collection": (*_EXACT, "like"),
    "changed_at": ("eq", "ne", "in", "exists", *ORDERED),
}
"""Operators of fields that do not have all."""

_TEXTS = frozenset({"uri", "title", "kind", "language", "collection", "changed_at"})
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?P<time>[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)

_Written = Annotated[str, Field(max_length=protocol_limits.CONDITION_CHARACTERS)]
Operator = Literal["eq", "ne", "in", "gt", "gte", "lt", "lte", "between", "like", "exists"]
_Field = Annotated[Text, Field(min_length=1, max_length=protocol_limits.NAME_CHARACTERS)]


class Period(NamedTuple):
    """The time that a text names: an instant, or a whole day. ``end`` is its first moment after."""

    begin: datetime
    end: datetime | None


def period(text: str) -> Period | None:
    """Read a date or a time in ISO 8601; without a zone, it is in UTC. Returns None for others."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    try:
        begin = datetime.fromisoformat(text)
        begin = begin.replace(tzinfo=UTC) if begin.tzinfo is None else begin.astimezone(UTC)
        return Period(begin, None if match["time"] else begin + timedelta(days=1))
    except (ValueError, OverflowError):
        return None


class Where(Data):
    """A condition on one field, or several conditions under ``and``, ``or`` or ``not``.

    ``field`` is ``uri``, ``kind``, ``collection``, ``title``, ``language``, ``changed_at`` (the
    time at which the last change was published), or a key of the metadata; ``metadata.KEY`` is
    always one. ``value`` is a list for ``in`` and ``between``. ``exists`` needs no value.

    A document without the field does not fulfil a condition on it, whatever the operator, so it
    fulfils ``not``. Numbers are compared as numbers, with numbers only. If a value to compare by
    order is a date or time in ISO 8601, it is compared with dates and times, as times; a date alone
    is the whole day. Other texts are ordered by their characters. In the text of ``like``, ``%``
    stands for any characters, ``_`` for one, and a backslash escapes them.
    """

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    field: _Field | None = None
    op: Operator | None = None
    value: (
        Annotated[
            Scalar
            | Annotated[
                tuple[Scalar, ...], Field(min_length=1, max_length=protocol_limits.LISTED_VALUES)
            ],
            OneProblem(f"{SCALAR_WORDS}, or a list of 1 to {protocol_limits.LISTED_VALUES} such"),
        ]
        | None
    ) = None
    and_: Annotated[
        Annotated[tuple[Where, ...], Field(min_length=1, max_length=protocol_limits.CONDITIONS)]
        | None,
        Field(alias="and"),
    ] = None
    or_: Annotated[
        Annotated[tuple[Where, ...], Field(min_length=1, max_length=protocol_limits.CONDITIONS)]
        | None,
        Field(alias="or"),
    ] = None
    not_: Annotated[Where | None, Field(alias="not")] = None

    @property
    def parts(self) -> tuple[Where, ...]:
        """Conditions directly in this one; none if it is on one field."""
        return (*(self.and_ or ()), *(self.or_ or ()), *((self.not_,) if self.not_ else ()))

    @property
    def fields(self) -> frozenset[str]:
        """Names of the fields of all conditions in this one."""
        own = () if self.field is None else (self.field,)
        return frozenset(own).union(*(part.fields for part in self.parts))

    @field_validator("op")
    @classmethod
    def _applies(cls, op: str | None, info: ValidationInfo) -> str | None:
        field = info.data.get("field")
        allowed = _OPERATORS_OF.get(field or "")
        if allowed is not None and op is not None and op not in allowed:
            raise ValueError(f"{field} has no {op}: use {', '.join(allowed)}")
        return op

    @field_validator("value")
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        field, op = info.data.get("field"), info.data.get("op")
        if field is None or op is None:
            return value
        values = value if isinstance(value, tuple) else (value,)
        _check_form(op, value)
        if op == "exists":
            return value
        if field in _TEXTS and not all(isinstance(item, str) for item in values):
            raise ValueError(f"{field} is compared with texts: write the value in quotes")
        normal = tuple(_VALUES.get(field, _same)(item) for item in values)
        if op in ORDERED:
            _check_order(normal)
        if op == "like":
            _check_pattern(normal[0])
        return normal if isinstance(value, tuple) else normal[0]

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        groups = [group for group in (self.and_, self.or_, self.not_) if group is not None]
        is_leaf = self.field is not None or self.op is not None or self.value is not None
        if len(groups) + is_leaf != 1:
            raise ValueError("needs either field and op, or one of and, or, not")
        if is_leaf and (self.field is None or self.op is None):
            raise ValueError("needs both field and op")
        if is_leaf and self.value is None and self.op != "exists":
            raise ValueError(f"{self.op} needs a value")
        return self


def _parsed(value: Any) -> Any:
    """Read a text as conditions, and refuse a value that is too deep or too large to validate."""
    if isinstance(value, str):
        value = parsed(value)
    _check_size(value)
    return value


WhereOrText = Annotated[Where, BeforeValidator(_parsed, json_schema_input_type=Where | _Written)]
"""Conditions, in events; where a question is written, they may be a text."""


def _check_size(value: Any) -> None:
    count = 0
    level = [value]
    for _ in range(protocol_limits.CONDITION_DEPTH):
        level = [part for parts in map(_inner, level) for part in parts]
        count += len(level)
        if count >= protocol_limits.CONDITIONS:
            raise ValueError(f"has over {protocol_limits.CONDITIONS} conditions")
    if level:
        raise ValueError(f"is nested over {protocol_limits.CONDITION_DEPTH} levels")


def _inner(value: Any) -> Iterator[Any]:
    """Conditions directly in one, whether it is a model or what it is made of."""
    if isinstance(value, Where):
        yield from value.parts
    if isinstance(value, dict):
        for name in ("and", "or", "and_", "or_"):
            if isinstance(value.get(name), list | tuple):
                yield from value[name]
        yield from (value[name] for name in ("not", "not_") if value.get(name) is not None)


def _check_form(op: str, value: Any) -> None:
    if op == "exists" and value not in (None, True):
        raise ValueError("exists has no value: write not for the opposite")
    if op in _LISTED and not isinstance(value, tuple):
        raise ValueError(f"{op} needs a list")
    if op == "between" and len(value) != len(("least", "greatest")):
        raise ValueError("between needs a list of two values")
    if op not in _LISTED and isinstance(value, tuple):
        raise ValueError(f"{op} needs one value: use in for a list")


def _check_order(values: tuple[Scalar, ...]) -> None:
    if any(isinstance(value, bool) for value in values):
        raise ValueError("true and false have no order: use eq")
    if len({isinstance(value, str) for value in values}) > 1:
        raise ValueError("the two values must be of one type")
    if len({period(value) is None for value in values if isinstance(value, str)}) > 1:
        raise ValueError("the two values must both be dates or times, or both be other texts")


def _check_pattern(value: Scalar) -> None:
    if not isinstance(value, str):
        raise ValueError("like needs a text")  # noqa: TRY004  # pydantic reports this one
    if re.search(r"(?<!\\)(?:\\\\)*\\\Z", value):
        raise ValueError("a backslash at the end escapes nothing: write two")


def _same(value: Scalar) -> Scalar:
    return value


def _kind(value: Scalar) -> Scalar:
    if value not in DOCUMENT_KINDS:
        raise ValueError(f"{value!r:.64} is not a kind: use one of {', '.join(DOCUMENT_KINDS)}")
    return value


def _moment(value: Scalar) -> Scalar:
    if period(str(value)) is None:
        raise ValueError("needs a date or time in ISO 8601, as 2026-03-31 or 2026-03-31T12:00Z")
    return value


_VALUES: dict[str, Callable[[Scalar], Scalar]] = {
    "kind": _kind,
    "language": lambda value: languages.canonical(str(value)),
    "changed_at": _moment,
}
"""Functions that check and normalize a value of a field."""
