"""Adds chunks to the keyword index, in the transaction that writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import asyncpg
import numpy as np

from store.postgres.named_queries import named
from store.search.keyword.postings import (
    INLINE_CHUNKS,
    MAX_CHUNKS,
    Postings,
    encode_chunks,
    encode_inline,
    term_hash,
)
from store.search.keyword.tokenizer import TextCache, pieces, terms_of, words_of

__all__ = [
    "LARGE_TIMEOUT_S",
    "ChunkText",
    "Segment",
    "about_chunk",
    "about_document",
    "add",
    "insert_segment",
    "insert_words",
    "segments_of",
]

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


_URI_SEPARATOR = re.compile(r"[/\\.:?#&=]+")

Segment = tuple[Postings, list[str]]
"""Postings of some chunks, and their distinct words that a misspelt word can be corrected to."""


@dataclass(frozen=True, slots=True)
class ChunkText:
    """A chunk's id and everything that it is found by: text, symbol, headings, title and uri."""

    chunk_id: int
    content: str
    uri: str
    title: str | None = None
    symbol: str | None = None
    heading_path: Sequence[str] = ()


def about_document(uri: str, title: str | None) -> str:
    """Text about a document, by which each of its chunks is found."""
    return "\n".join((title or "", " ".join(_URI_SEPARATOR.split(uri))))


def about_chunk(symbol: str | None, heading_path: Sequence[str]) -> str:
    """Text about a chunk, by which it is found in addition to its content."""
    return "\n".join((symbol or "", *heading_path))


def segments_of(texts: Sequence[ChunkText]) -> list[Segment]:
    """Build one segment for each 65,536 chunks.

    For speed, a text is not converted to terms as a whole: the term hashes of each piece are
    cached, and the terms themselves are used once for each distinct piece.
    """
    starts = range(0, len(texts), MAX_CHUNKS)
    return [_segment(texts[start : start + MAX_CHUNKS]) for start in starts]


def _segment(texts: Sequence[ChunkText]) -> Segment:
    distinct: set[str] = set()
    hashes: list[list[int]] = []
    for parts in _pieces(texts):
        distinct.update(parts)
        hashes.append(list(chain.from_iterable(map(_remembered.__getitem__, parts))))
    postings = Postings.of_hashes(
        np.array([text.chunk_id for text in texts], np.int64),
        np.array([len(terms) for terms in hashes], np.uint32),
        np.fromiter(chain.from_iterable(hashes), np.int64),
    )
    return postings, words_of(chain.from_iterable(map(terms_of, distinct)))


def _pieces(texts: Sequence[ChunkText]) -> Iterator[list[str]]:
    """Pieces of each chunk; its document's pieces are computed once for consecutive chunks."""
    document: tuple[str, str | None] | None = None
    shared: list[str] = []
    for text in texts:
        if document != (text.uri, text.title):
            document = text.uri, text.title
            shared = pieces(about_document(*document))
        own = pieces(about_chunk(text.symbol, text.heading_path))
        yield [*pieces(text.content), *own, *shared]


def _hashes_of_piece(piece: str) -> tuple[int, ...]:
    return tuple(map(term_hash, terms_of(piece)))


_remembered = TextCache(_hashes_of_piece)
