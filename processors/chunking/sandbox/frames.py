"""Messages between a worker and its parser processes: JSON in frames with a length.

The child reads untrusted bytes. As JSON, its messages can at worst contain wrong text, while a
pickle could run code in the worker. A frame is 4 bytes of length, big endian, then UTF-8.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from processors.chunking.types import Chunk, Source
from runtime.errors import LimitExceeded, Poison, UnsupportedContent

__all__ = [
    "LENGTH_BYTES",
    "chunks_from",
    "error_message",
    "frame",
    "length_of",
    "request",
    "result_message",
    "source_from",
]

LENGTH_BYTES = 4
_POISONS: dict[str, type[Poison]] = {
    kind.__name__: kind for kind in (UnsupportedContent, LimitExceeded)
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
    return frame({"source": asdict(source), "limit_tokens": limit_tokens})


def source_from(body: bytes) -> tuple[Source, int]:
    """Decode the document and the limit of a request."""
    message = json.loads(body)
    return Source(**message["source"]), message["limit_tokens"]


def result_message(chunks: list[Chunk]) -> dict[str, Any]:
    """Build the answer to a request that succeeded."""
    rows = [
        (c.start_line, c.end_line, c.content, c.header, c.tokens, c.symbol, c.heading_path, c.page)
        for c in chunks
    ]
    return {"chunks": rows}


def error_message(error: Exception) -> dict[str, Any]:
    """Build the answer to a request that failed."""
    if not isinstance(error, Poison):
        error = UnsupportedContent(f"cannot be parsed: {error!r:.300}")
    return {"error": error.code, "message": error.message, "remedy": error.remedy}


def chunks_from(body: bytes) -> list[Chunk] | Poison:
    """Decode the chunks, or the error, of an answer.

    Raises:
        ValueError: the body is not an answer.
    """
    try:
        message = json.loads(body)
        if "error" in message:
            kind = _POISONS.get(message["error"], UnsupportedContent)
            return kind(str(message["message"]), str(message["remedy"]))
        return [_chunk(row) for row in message["chunks"]]
    except (TypeError, KeyError) as error:
        raise ValueError(f"not an answer: {error!r}") from None


def _chunk(row: list[Any]) -> Chunk:
    start_line, end_line, content, header, tokens, symbol, heading_path, page = row
    return Chunk(
        start_line=int(start_line),
        end_line=int(end_line),
        content=str(content),
        header=str(header),
        tokens=int(tokens),
        symbol=None if symbol is None else str(symbol),
        heading_path=tuple(map(str, heading_path)),
        page=None if page is None else int(page),
    )
