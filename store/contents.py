"""Content that is too big to travel in an event, kept by its hash."""

from __future__ import annotations

import hashlib

import asyncpg

from events.models import ContentReference
from runtime.errors import LimitExceeded, UnsupportedContent
from store.named_queries import named

__all__ = ["MAX_CONTENT_BYTES", "get", "put"]

MAX_CONTENT_BYTES = 64 * 2**20
_QUERIES = named("contents")


async def put(connection: asyncpg.Connection, project_id: int, content: str) -> ContentReference:
    """Keep content; keeping it again changes nothing.

    Raises:
        UnsupportedContent: Postgres can't hold it as text.
        LimitExceeded: it is over ``MAX_CONTENT_BYTES``.
    """
    data = _storable(content)
    digest = hashlib.sha256(data)
    await connection.execute(
        _QUERIES["put_content"], project_id, digest.digest(), content, len(data)
    )
    return ContentReference(sha256=digest.hexdigest(), size_bytes=len(data))


def _storable(content: str) -> bytes:
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedContent("the content has lone surrogates, so it is no UTF-8") from error
    if b"\0" in data:
        raise UnsupportedContent("the content has NUL characters: is it binary?")
    if len(data) > MAX_CONTENT_BYTES:
        raise LimitExceeded(
            f"{len(data):,} bytes of content, over the limit of {MAX_CONTENT_BYTES:,}"
        )
    return data


async def get(connection: asyncpg.Connection, project_id: int, sha256: str) -> str:
    """The content of a hash in hex.

    Raises:
        UnsupportedContent: there is none.
    """
    found = await connection.fetchval(_QUERIES["get_content"], project_id, bytes.fromhex(sha256))
    if found is None:
        raise UnsupportedContent(f"no content is stored under {sha256}: publish it again")
    return str(found)
