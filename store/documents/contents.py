"""Contents that are too large for an event, stored by their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime

import asyncpg

from events.models import ContentReference
from runtime.errors import LimitExceeded, UnsupportedContent
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["MAX_CONTENT_BYTES", "binary", "put", "read", "release_contents", "sizes"]

MAX_CONTENT_BYTES = 64 * 2**20
_QUERIES = named("contents")


async def put(
    connection: asyncpg.Connection, project_id: int, content: str | bytes
) -> ContentReference:
    """Store content, text or bytes; storing it again changes nothing.

    Raises:
        UnsupportedContent: it is a text that Postgres cannot store.
        LimitExceeded: it is larger than ``MAX_CONTENT_BYTES``.
    """
    text, raw = (content, None) if isinstance(content, str) else (None, content)
    data = _storable(content)
    digest = hashlib.sha256(data)
    await connection.execute(
        _QUERIES["put_content"], project_id, digest.digest(), text, raw, len(data)
    )
    return ContentReference(sha256=digest.hexdigest(), size_bytes=len(data))


def _storable(content: str | bytes) -> bytes:
    data = _encoded(content) if isinstance(content, str) else content
    if len(data) > MAX_CONTENT_BYTES:
        raise LimitExceeded(
            f"{len(data):,} bytes of content, over the limit of {MAX_CONTENT_BYTES:,}"
        )
    return data


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedContent(
            "the text has lone surrogates, so it is not valid UTF-8"
        ) from error
    if b"\0" in data:
        raise UnsupportedContent("the text has NUL characters", "publish it as bytes")
    return data


async def read(
    connection: asyncpg.Connection, project_id: int, hashes: Collection[str]
) -> dict[str, bytes]:
    """Bytes of contents by their hashes (hex); contents that are not stored are absent."""
    rows = await connection.fetch(_QUERIES["read_contents"], project_id, binary(hashes))
    return {row["sha256"].hex(): row["raw"] for row in rows}


async def sizes(
    connection: asyncpg.Connection, project_id: int, hashes: Collection[str]
) -> dict[str, int]:
    """Sizes in bytes of contents by their hashes (hex); contents that are not stored are absent."""
    rows = await connection.fetch(_QUERIES["measure_contents"], project_id, binary(hashes))
    return {row["sha256"].hex(): row["size_bytes"] for row in rows}


def binary(hashes: Collection[str]) -> list[bytes]:
    """Hashes (hex) as Postgres stores them."""
    return [bytes.fromhex(sha256) for sha256 in hashes]


_AT_ONCE = 500


async def release_contents(database: Database, project_id: int, before: datetime) -> int:
    """Drop contents that are archived, were last put before a time, and are not in the outbox.

    Returns:
        Number of dropped contents.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    released = 0
    while True:
        async with database.scope(project_id) as connection:
            count: int = await connection.fetchval(
                _QUERIES["release_contents"], project_id, before, _AT_ONCE
            )
        released += count
        if count < _AT_ONCE:
            return released
