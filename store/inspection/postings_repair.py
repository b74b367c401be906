"""Repair of the keyword index: rewrites the postings of broken segments and missing chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg

from runtime.errors import Unavailable
from store.generations.catalog import Generation
from store.inspection.postings import survey_postings
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.keyword.writer import ChunkText, add, segments_of

__all__ = ["repost"]

_QUERIES = named("inspection")
_KEYWORD = named("keyword")
_CHUNKS_AT_ONCE = 4_096
_TRIES = 50
_PAUSE_S = 0.2


async def repost(database: Database, generation: Generation) -> int:
    """Replace broken segments by intact ones; return the number of chunks indexed again.

    This is one transaction, during which no other process merges segments. Writers and queries are
    not blocked.

    Raises:
        Unavailable: the server cannot be reached, or maintenance held its lock for too long.
    """
    for _ in range(_TRIES):
        async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
            if await Lock.MAINTENANCE.try_acquire(connection, generation.id):
                return await _repost(connection, generation.id)
        await asyncio.sleep(_PAUSE_S)
    raise Unavailable(f"the segments of generation {generation.id} are being merged: try again")


async def _repost(connection: asyncpg.Connection, generation_id: int) -> int:
    rewritten = (await survey_postings(connection, generation_id)).to_rewrite
    await connection.execute(_KEYWORD["delete_postings"], generation_id, rewritten)
    await connection.execute(_KEYWORD["delete_segments"], generation_id, rewritten)
    missing = (await survey_postings(connection, generation_id)).missing
    for start in range(0, len(missing), _CHUNKS_AT_ONCE):
        await _post(connection, generation_id, missing[start : start + _CHUNKS_AT_ONCE])
    return len(missing)


async def _post(
    connection: asyncpg.Connection, generation_id: int, chunk_ids: Sequence[int]
) -> None:
    rows = await connection.fetch(_QUERIES["chunk_words"], generation_id, chunk_ids)
    segments = await asyncio.to_thread(segments_of, [_text(row) for row in rows])
    await add(connection, generation_id, segments)


def _text(row: asyncpg.Record) -> ChunkText:
    return ChunkText(
        row["id"], row["content"], row["uri"], row["title"], row["symbol"], row["heading_path"]
    )
