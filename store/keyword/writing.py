"""Adding chunks to the keyword index, in the transaction that writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import asyncpg

from store.keyword.postings import MAX_CHUNKS, Postings
from store.keyword.segments import INLINE_CHUNKS, encode_chunks, encode_inline
from store.keyword.tokens import terms
from store.keyword.vocabulary import words_of
from store.named_queries import named
from store.threads import in_thread

__all__ = [
    "LARGE_TIMEOUT_S",
    "ChunkTerms",
    "about_chunk",
    "about_document",
    "add",
    "insert_segment",
    "insert_words",
]

LARGE_TIMEOUT_S = 60.0
"""Of statements that write or read a row for each term of a large segment."""

_QUERIES = named("keyword")
_URI_SEPARATOR = re.compile(r"[/\\.:?#&=]+")


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """A chunk's id with the terms it is found by, as they occur, repeats included."""

    chunk_id: int
    terms: Sequence[str]

    @classmethod
    def of(
        cls,
        chunk_id: int,
        content: str,
        *,
        uri: str,
        title: str | None = None,
        symbol: str | None = None,
        heading_path: Sequence[str] = (),
    ) -> ChunkTerms:
        """Terms of a chunk's text and of the words about it: title, symbol, headings, path."""
        about = about_chunk(symbol, heading_path), about_document(uri, title)
        return cls(chunk_id, [*terms(content), *terms("\n".join(about))])


def about_document(uri: str, title: str | None) -> str:
    """Words that every chunk of a document is found by."""
    return "\n".join((title or "", " ".join(_URI_SEPARATOR.split(uri))))


def about_chunk(symbol: str | None, heading_path: Sequence[str]) -> str:
    """Words that a chunk is found by besides its text."""
    return "\n".join((symbol or "", *heading_path))


async def add(
    connection: asyncpg.Connection, generation_id: int, rows: Sequence[ChunkTerms]
) -> None:
    """Make chunks findable by their words once the connection's transaction commits.

    A chunk is added once in its life, in the transaction that inserts its row: where its terms
    change (an edit, another title, another uri), it must get a new id. Nothing needs to be done
    when a chunk is deleted: questions skip ids that have no row, and a later merge drops them.

    Raises:
        asyncpg.PostgresError: the connection isn't in the scope of the generation, or the server
            failed.
    """
    for start in range(0, len(rows), MAX_CHUNKS):
        part = rows[start : start + MAX_CHUNKS]
        await insert_segment(connection, generation_id, await _build(connection, part))
        words = words_of(chain.from_iterable(row.terms for row in part))
        await insert_words(connection, generation_id, words)


async def _build(connection: asyncpg.Connection, rows: Sequence[ChunkTerms]) -> Postings:
    """In a thread where it would hold up the event loop."""
    pairs = [(row.chunk_id, row.terms) for row in rows]
    if len(pairs) <= INLINE_CHUNKS:
        return Postings.build(pairs)
    return await in_thread(connection, Postings.build, pairs)


async def insert_segment(
    connection: asyncpg.Connection, generation_id: int, postings: Postings
) -> None:
    """Write one segment, its postings inside its row or, if it is large, in rows of their own."""
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
    """Keep the words themselves too, for the correction of misspelt ones."""
    if words:
        await connection.execute(_QUERIES["insert_words"], generation_id, "\n".join(words))
