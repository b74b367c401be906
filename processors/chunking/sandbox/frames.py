"""Messages between a worker and its parser processes, in frames with a length.

The child reads untrusted bytes. As JSON, its messages can at worst contain wrong text, while a
pickle could run code in the worker. A frame is 4 bytes of length, big endian, then its body: JSON
in UTF-8; of a request a frame with JSON, and behind it the bytes of the document.
"""

from __future__ import annotations

import json
from typing import Any

from processors.chunking.types import Boundaries, Chunk, Cut, Source
from runtime import protocol_limits
from runtime.errors import (
    Damaged,
    Encrypted,
    LegacyFormat,
    LimitExceeded,
    NoTextLayer,
    Poison,
    UnsupportedContent,
)

__all__ = [
    "LENGTH_BYTES",
    "cut_from",
    "error_message",
    "frame",
    "length_of",
    "request",
    "result_message",
    "source_from",
]

LENGTH_BYTES = 4
_POISONS: dict[str, type[Poison]] = {
    kind.__name__: kind
    for kind in (
        UnsupportedContent,
        LimitExceeded,
        Encrypted,
        NoTextLayer,
        LegacyFormat,
        Damaged,
    )
}


def frame(message: Any) -> bytes:
    """Encode a message as a frame."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def length_of(head: bytes) -> int:
    """Length in bytes of the body that follows ``head``."""
    return int.from_bytes(head, "big")


def request(source: Source, limit_tokens: int) -> bytes:
    """Build the frame that requests one document's chunks."""
    content = source.content
    raw = content.encode() if isinstance(content, str) else content
    head = frame(
        {
            "uri": source.uri,
            "kind": source.kind,
            "language": source.language,
            "title": source.title,
            "media_type": source.media_type,
            "version": source.version,
            "is_text": isinstance(content, str),
            "limit_tokens": limit_tokens,
            "strategy": source.strategy,
            "distances": source.boundaries.distances,
        }
    )
    return (len(head) + len(raw)).to_bytes(LENGTH_BYTES, "big") + head + raw


def source_from(body: bytes) -> tuple[Source, int]:
    """Decode the document and the limit of a request."""
    start = LENGTH_BYTES + length_of(body[:LENGTH_BYTES])
    fields = json.loads(body[LENGTH_BYTES:start])
    is_text, limit_tokens = fields.pop("is_text"), fields.pop("limit_tokens")
    boundaries = Boundaries(fields.pop("distances"))
    content = body[start:].decode() if is_text else body[start:]
    return Source(content=content, boundaries=boundaries, **fields), limit_tokens


def result_message(cut: Cut) -> dict[str, Any]:
    """Build the answer to a request that succeeded."""
    return {
        "chunks": [_row(chunk) for chunk in cut.chunks],
        "title": cut.title,
        "warnings": cut.warnings,
        "metadata": dict(cut.metadata),
        "asked": cut.asked,
        "examples": [
            (*_row(example), example.language, example.surroundings) for example in cut.examples
        ],
    }


def _row(chunk: Chunk) -> tuple[Any, ...]:
    return (
        *(chunk.start_line, chunk.end_line, chunk.content, chunk.header, chunk.tokens),
        *(chunk.symbol, chunk.heading_path, chunk.page, chunk.locator),
    )


def error_message(error: Exception) -> dict[str, Any]:
    """Build the answer to a request that failed."""
    if not isinstance(error, Poison):
        error = UnsupportedContent(f"cannot be parsed: {error!r:.300}")
    return {"error": error.code, "message": error.message, "remedy": error.remedy}


def cut_from(body: bytes) -> Cut | Poison:
    """Decode the chunks, or the error, of an answer.

    Raises:
        ValueError: the body is not an answer.
    """
    try:
        message = json.loads(body)
        if "error" in message:
            kind = _POISONS.get(message["error"], UnsupportedContent)
            return kind(str(message["message"]), str(message["remedy"]))
        title, warnings = message["title"], message["warnings"]
        return Cut(
            [_chunk(row) for row in message["chunks"]],
            None if title is None else _storable(title)[: protocol_limits.TITLE_CHARACTERS],
            tuple(
                _storable(warning)[: protocol_limits.WARNING_CHARACTERS]
                for warning in warnings[: protocol_limits.WARNINGS]
            ),
            {
                str(name): _storable(value)[: protocol_limits.TITLE_CHARACTERS]
                for name, value in message["metadata"].items()
            },
            tuple(tuple(map(str, run)) for run in message["asked"]),
            [_example(row) for row in message["examples"]],
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not an answer: {error!r}") from None


def _chunk(row: list[Any]) -> Chunk:
    start_line, end_line, content, header, tokens, symbol, heading_path, page, locator = row
    return Chunk(
        start_line=int(start_line),
        end_line=int(end_line),
        content=str(content),
        header=str(header),
        tokens=int(tokens),
        symbol=None if symbol is None else str(symbol),
        heading_path=tuple(map(str, heading_path)),
        page=None if page is None else int(page),
        locator=None if locator is None else dict(locator),
    )


def _example(row: list[Any]) -> Chunk:
    *fields, language, surroundings = row
    return _chunk(fields)._replace(
        language=None if language is None else str(language),
        surroundings=str(surroundings),
    )


def _storable(text: object) -> str:
    """Make a text of a document printable in one line, and free of what Postgres cannot store."""
    return "".join(character if character.isprintable() else " " for character in str(text))
