"""Conditions on the documents and chunks that a query searches, and the chunk that it is like."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from content import languages
from events.conditions import WhereOrText
from events.fields import Collection, Data, Kind, Metadata, Text, Uri
from events.globs import expression
from runtime import protocol_limits

__all__ = ["Filters", "Like", "LikeOrText"]


def _of_a_path(pattern: str) -> str:
    expression(pattern.removeprefix("!"))
    return pattern


def _symbol(name: str) -> str:
    """Name of a symbol without the parentheses of a call."""
    symbol = name.strip().removesuffix("()")
    if not symbol:
        raise ValueError("a symbol needs a name")
    return symbol


def _is_empty(value: object) -> bool:
    """Leave a field out if it is not used: workers of a version without it refuse it."""
    return not value


_PathGlob = Annotated[
    Text,
    Field(min_length=1, max_length=protocol_limits.GLOB_CHARACTERS),
    AfterValidator(_of_a_path),
]
_Name = Annotated[Text, Field(min_length=1, max_length=protocol_limits.NAME_CHARACTERS)]


_Phrase = Annotated[
    Text, Field(min_length=1, max_length=protocol_limits.NAME_CHARACTERS, pattern=r"\w")
]


class Filters(Data):
    """Conditions on the documents that a query searches; all must hold.

    ``kinds``: the document is of one of them. With ``code_example``, the code examples of documents
    are searched, and nothing else; without it, examples are not searched.

    ``path_globs``: the uri matches one of them, as in a ``.gitignore``, and none of those that
    begin with ``!``. ``languages``: the document is a file of code in one of these languages, by
    its media type or name, or the code example names one of them. ``symbols``: the chunk defines
    one of these names; a name may have its owner before it, as ``Client.ask``.
    ``phrases``, ``without``: the chunk's text has all of the former, and none of the latter: whole
    words in a row, in letters of either case. ``where`` is a
    condition with operators, also written as ``version >= 3 and not team in (a, b)``.
    """

    kinds: Annotated[tuple[Kind, ...], Field(max_length=protocol_limits.KINDS)] = ()
    collections: Annotated[
        tuple[Collection, ...], Field(max_length=protocol_limits.COLLECTIONS)
    ] = ()
    uri_prefix: Annotated[Text, Field(max_length=2048)] | None = None
    metadata: Annotated[Metadata, Field(max_length=16)] = Field(default_factory=dict)
    path_globs: Annotated[
        tuple[_PathGlob, ...],
        Field(max_length=protocol_limits.FILTER_VALUES, exclude_if=_is_empty),
    ] = ()
    languages: Annotated[
        tuple[_Name, ...], Field(max_length=protocol_limits.FILTER_VALUES, exclude_if=_is_empty)
    ] = ()
    symbols: Annotated[
        tuple[Annotated[_Name, AfterValidator(_symbol)], ...],
        Field(max_length=protocol_limits.FILTER_VALUES, exclude_if=_is_empty),
    ] = ()

    where: WhereOrText | None = None

    phrases: Annotated[
        tuple[_Phrase, ...],
        Field(max_length=protocol_limits.FILTER_VALUES, exclude_if=_is_empty),
    ] = ()
    without: Annotated[
        tuple[_Phrase, ...],
        Field(max_length=protocol_limits.FILTER_VALUES, exclude_if=_is_empty),
    ] = ()

    @field_validator("languages")
    @classmethod
    def _canonical(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Replace aliases. Code examples may have languages that are known to nothing else."""
        if Kind.CODE_EXAMPLE in info.data.get("kinds", ()):
            return tuple(languages.canonical_or_same(name) for name in names)
        return tuple(languages.canonical(name) for name in names)


class Like(Data):
    """A chunk that other chunks are to be like: by its id, or by a line of a document.

    Without a ``line``, it is the first chunk of the document. If no chunk has the line, it is the
    nearest one, unless the line is behind the last one of the document. ``other_documents``:
    leave out the other chunks of its document.
    """

    chunk_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    uri: Uri | None = None
    line: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    other_documents: bool = False

    @model_validator(mode="after")
    def _names_a_chunk(self) -> Self:
        if (self.chunk_id is None) == (self.uri is None):
            raise ValueError("needs either chunk_id, or uri and line")
        if self.line is not None and self.uri is None:
            raise ValueError("line needs uri")
        return self


_PLACE = re.compile(r"(?P<uri>.+):(?P<line>[0-9]{1,9})(?:-[0-9]{1,9})?", re.DOTALL)


def _place(value: Any) -> Any:
    """Read the id of a chunk, or a place as results cite it: ``path:12`` or ``path:12-40``."""
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isdigit():
        return {"chunk_id": int(value[:20])}
    place = _PLACE.fullmatch(value)
    return {"uri": value} if place is None else {"uri": place["uri"], "line": int(place["line"])}


LikeOrText = Annotated[
    Like,
    BeforeValidator(_place, json_schema_input_type=Like | Annotated[str, Field(max_length=2100)]),
]
"""A chunk in events; where a question is written, it may be a place."""
