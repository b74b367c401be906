"""Adds chunks to the keyword index, in the transaction that writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import asyncpg

from store.keyword.building import Segment
from store.keyword.postings import Postings
from store.keyword.segments import INLINE_CHUNKS, encode_chunks, encode_inline
from store.named_queries import named

__all__ = ["LARGE_TIMEOUT_S", "add", "insert_segment", "insert_words"]

LARGE_TIMEOUT_S = 60.0
"""Timeout of statements that write or read a row for each term of a large segment."""

_QUERIES = named("keyword")


async def add(
    connection: asyncpg.Connection, generation_id: int, segments: Iterable[Segment]
) -> None:
    """Make chunks searchable by their words once the connection's transaction commits.

    A chunk is added exactly once, in the transaction that inserts its row. If its terms change (by
    an edit, another title or another uri), it must get a new id. When a chunk is deleted, nothing
    needs to be done: queries skip ids without a row, and a later merge drops them.

    Raises:
        asyncpg.PostgresError: the connection is not in the scope of the generation, or the server
            failed.
    """
    for postings, words in segments:
        await insert_segment(connection, generation_id, postings)
        await insert_words(connection, generation_id, words)


async def insert_segment(
    connection: asyncpg.Connection, generation_id: int, postings: Postings
) -> None:
    """Write one segment, with its postings in its row or, if it is large, in rows of their own."""
    small = len(postings.chunk_ids) <= INLINE_CHUNKS
    segment_id = await connection.fetchval(
        _QUERIES["insert_segment"],
        generation_id,
        len(postings.chunk_ids),
        int(postings.lengths.sum()),
        encode_chunks(postings),
        encode_inline(postings) if small else None,
    )
    if not small:
        packed = list(postings.packed())
        await connection.execute(
            _QUERIES["insert_postings"],
            generation_id,
            segment_id,
            [term for term, _ in packed],
            [data for _, data in packed],
            timeout=LARGE_TIMEOUT_S,
        )


async def insert_words(
    connection: asyncpg.Connection, generation_id: int, words: Sequence[str]
) -> None:
    """Store the words themselves, for the correction of misspelt ones."""
    if words:
        await connection.execute(_QUERIES["insert_words"], generation_id, "\n".join(words))
