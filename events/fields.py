"""Field types of events; each has a limit."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
)
from pydantic_core import CoreSchema, core_schema

from runtime import protocol_limits

__all__ = [
    "DOCUMENT_KINDS",
    "SCALAR_WORDS",
    "Agent",
    "Base64",
    "Batch",
    "Collection",
    "Data",
    "DocumentAgent",
    "Instant",
    "Kind",
    "MediaType",
    "Metadata",
    "OneProblem",
    "Project",
    "ReplyKey",
    "Scalar",
    "Sha256",
    "Text",
    "Token",
    "TraceParent",
    "TraceState",
    "Uri",
    "problem_in_words",
    "storable",
]

_TRACE_PARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_TRACE_STATE = re.compile(r"[\x20-\x7e]{1,512}")


class Kind(StrEnum):
    """Kinds of content."""

    CODE = "code"
    MARKDOWN = "markdown"
    RST = "rst"
    TEXT = "text"
    OPENAPI = "openapi"
    PDF = "pdf"
    CONVERSATION = "conversation"
    HTML = "html"
    NOTEBOOK = "notebook"
    WORD = "word"
    SLIDES = "slides"
    SHEET = "sheet"
    EMAIL = "email"
    BOOK = "book"
    CODE_EXAMPLE = "code_example"


DOCUMENT_KINDS = tuple(kind for kind in Kind if kind is not Kind.CODE_EXAMPLE)
"""Kinds of whole documents: all but ``code_example``, a part of documents of other kinds."""


class Data(BaseModel):
    """Base class of the data of events."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def storable(text: str) -> str:
    """Return a text without NUL, which Postgres can't hold, and lone surrogates, as UTF-8 can't.

    Raises:
        ValueError: the text has one of them.
    """
    if "\x00" in text:
        raise ValueError("must not contain NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("must not contain lone surrogates") from error
    return text


def _fits_an_index_key(uri: str) -> str:
    """Reject a uri too long for an index: a B-tree key holds 2,704 bytes, a character up to 4."""
    if len(uri.encode()) > protocol_limits.URI_BYTES:
        raise ValueError(f"must have at most {protocol_limits.URI_BYTES:,} bytes in UTF-8")
    return uri


def _base64(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except (NotBase64, ValueError) as error:
        raise ValueError("must be base64 (RFC 4648, section 4)") from error
    return text


def _in_utc(instant: datetime) -> datetime:
    """Convert to UTC; near the ends of the calendar some instants exist in other zones only."""
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("must lie within the years 1 to 9999 in UTC") from error


def _trace_parent(text: object) -> str | None:
    """Drop a wrong trace context: it must not cost the event (W3C Trace Context, 3.2.2)."""
    return text if isinstance(text, str) and _TRACE_PARENT.fullmatch(text) else None


def _trace_state(text: object) -> str | None:
    return text if isinstance(text, str) and _TRACE_STATE.fullmatch(text) else None


@dataclass(frozen=True, slots=True)
class OneProblem:
    """Gives a union one problem in words; it would have one for each member, under its type."""

    words: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        assert schema["type"] == "union"
        return core_schema.union_schema(
            schema["choices"], custom_error_type="no_member", custom_error_message=self.words
        )


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Text = Annotated[str, AfterValidator(storable)]
Base64 = Annotated[str, AfterValidator(_base64)]
_PROJECT = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_AGENT = r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}$"
_DOCUMENT_AGENT = r"^(?:[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}(?:/[0-9a-f]{32})?|/[0-9a-f]{32})$"
_COLLECTION = r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,126}$"
_CHANGE_TOKEN = r"^(live|bulk):[0-9]{1,3}:[0-9]{1,15}-[0-9]{1,10}$"  # noqa: S105
_SHA256 = r"^[0-9a-f]{64}$"
_MEDIA_TYPE = r"^[A-Za-z0-9_.+-]+/[A-Za-z0-9_.+-]+$"
_BATCH = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"
Project = Annotated[str, Field(pattern=_PROJECT)]
Agent = Annotated[str, Field(pattern=_AGENT)]
DocumentAgent = Annotated[
    str,
    Field(pattern=_DOCUMENT_AGENT),
]
Collection = Annotated[str, Field(pattern=_COLLECTION)]
Uri = Annotated[
    Text,
    AfterValidator(_fits_an_index_key),
    Field(min_length=1, max_length=protocol_limits.URI_BYTES),
]
SCALAR_WORDS = (
    "must be a text without NUL of up to 2,048 characters, a finite number, true or false"
)
Scalar = Annotated[
    Annotated[Text, Field(max_length=2048)]
    | bool
    | int
    | Annotated[float, Field(allow_inf_nan=False)],
    OneProblem(SCALAR_WORDS),
]
Metadata = Annotated[
    dict[Annotated[Text, Field(min_length=1, max_length=128)], Scalar],
    Field(max_length=protocol_limits.METADATA_ENTRIES),
]
Token = Annotated[str, Field(pattern=_CHANGE_TOKEN)]
Sha256 = Annotated[str, Field(pattern=_SHA256)]
MediaType = Annotated[str, Field(pattern=_MEDIA_TYPE, max_length=128)]
ReplyKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.{}:@-]{1,256}$")]
Batch = Annotated[str, Field(pattern=_BATCH)]
TraceParent = Annotated[Annotated[str, Field(max_length=55)] | None, BeforeValidator(_trace_parent)]
TraceState = Annotated[Annotated[str, Field(max_length=512)] | None, BeforeValidator(_trace_state)]


_AGENT_WORDS = (
    "may have up to 128 characters (A to Z, a to z, digits, . _ @ : -), "
    "and must begin with a letter or a digit"
)
_WORDS = {
    _PROJECT: "may have up to 63 characters (a to z, digits, . _ -), "
    "and must begin with a letter or a digit",
    _AGENT: _AGENT_WORDS,
    _DOCUMENT_AGENT: _AGENT_WORDS,
    _COLLECTION: "may have up to 127 characters (A to Z, a to z, digits, blanks, . _ -), "
    "and must begin with a letter or a digit",
    _CHANGE_TOKEN: "must be the token of a change, such as live:0:1767225600000-0",
    _SHA256: "must be a SHA-256 in 64 hex digits",
    _MEDIA_TYPE: "must be a media type, such as text/markdown",
    _BATCH: "may have up to 64 characters (A to Z, a to z, digits, . _ : -), "
    "and must begin with a letter or a digit",
    r"^[0-9a-f]{32}$": "must have 32 hex digits",
    r"\S": "must not be empty",
}
"""Meaning of each pattern of a value that people type."""

_KINDS = {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "string_type": "must be a text",
    "string_unicode": "must not contain lone surrogates",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
}
"""Meaning of each kind of error that people make; pydantic's words are those of Python."""


def problem_in_words(error: Mapping[str, Any]) -> str:
    """Describe one error of a ``pydantic.ValidationError`` without its field."""
    kind, limits = error["type"], error.get("ctx", {})
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        return _WORDS.get(limits["pattern"], message)
    if kind in ("string_too_short", "too_short") and limits["min_length"] == 1:
        return "must not be empty"
    if kind in ("enum", "literal_error"):
        return f"must be one of {limits['expected']}".replace("'", "").replace(" or ", ", ")
    if kind in _KINDS:
        return _KINDS[kind].format(**limits)
    if kind in ("too_short", "too_long"):
        bound = (
            f"least {limits['min_length']}"
            if kind == "too_short"
            else f"most {limits['max_length']}"
        )
        return (
            f"must have at {bound} {'characters' if limits['field_type'] == 'Value' else 'items'}"
        )
    return message
