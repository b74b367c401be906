"""Adds chunks to the keyword index, in the transaction that writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

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
from store.search.keyword.rows import rows_of
from store.search.keyword.tokenizer import (
    DEFINES,
    TextCache,
    defined_names,
    pieces,
    terms_of,
    words_of_piece,
)

__all__ = [
    "LARGE_TIMEOUT_S",
    "ChunkText",
    "Segment",
    "about_chunk",
    "about_document",
    "add",
    "insert_segment",
    "segment_row",
    "segments_of",
]

LARGE_TIMEOUT_S = 60.0
"""Timeout of statements that write or read all rows of a large segment."""

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
    for segment in segments:
        await insert_segment(connection, generation_id, segment)


async def insert_segment(
    connection: asyncpg.Connection, generation_id: int, segment: Segment
) -> None:
    """Write one segment, with its postings in its row or, if it is large, in rows of their own."""
    segment_id = await connection.fetchval(
        _QUERIES["insert_segment"], generation_id, *segment_row(segment)
    )
    if not segment.is_small:
        rows = list(rows_of(segment.postings))
        await connection.execute(
            _QUERIES["insert_postings"],
            generation_id,
            segment_id,
            [key for key, _ in rows],
            [data for _, data in rows],
            timeout=LARGE_TIMEOUT_S,
        )


def segment_row(segment: Segment) -> tuple[object, ...]:
    """Row of a segment, with its postings if it is small, and its words."""
    postings = segment.postings
    return (
        len(postings.chunk_ids),
        int(postings.lengths.sum()),
        encode_chunks(postings),
        encode_inline(postings) if segment.is_small else None,
        segment.is_example,
        "\n".join(segment.words) or None,
    )


_NEAR_WORDS = 3
_URI_SEPARATOR = re.compile(r"[/\\.:?#&=]+")


class Segment(NamedTuple):
    """Postings of some chunks, and their distinct words that a misspelt word can be corrected to.

    The chunks are either code examples or not. Examples give no words: the text around them, which
    is in chunks too, has the same.
    """

    postings: Postings
    words: list[str]
    is_example: bool

    @property
    def is_small(self) -> bool:
        """Return whether its row includes its postings."""
        return len(self.postings.chunk_ids) <= INLINE_CHUNKS


class ChunkText(NamedTuple):
    """A chunk's id and everything that it is found by.

    That is its text, symbol and headings, its document's title and uri, and its context. A code
    example is also found by its ``surroundings``.
    """

    chunk_id: int
    content: str
    uri: str
    title: str | None = None
    symbol: str | None = None
    heading_path: Sequence[str] = ()
    is_example: bool = False
    surroundings: str = ""
    context: str = ""


def about_document(uri: str, title: str | None) -> str:
    """Text about a document, by which each of its chunks is found.

    Folder, file name and suffix stand for a missing title, so they count twice.
    """
    words = _URI_SEPARATOR.split(uri)
    near = words[-_NEAR_WORDS:] if len(words) > 1 else ()
    return "\n".join((title or " ".join(near), " ".join(words)))


def about_chunk(symbol: str | None, heading_path: Sequence[str], context: str = "") -> str:
    """Text about a chunk, by which it is found in addition to its content."""
    return "\n".join((symbol or "", *heading_path, context))


def segments_of(texts: Sequence[ChunkText]) -> list[Segment]:
    """Build one segment for each 65,536 chunks, and separate ones for code examples.

    For speed, a text is not converted to terms as a whole: the term hashes of each piece are
    cached, and the terms themselves are used once for each distinct piece.
    """
    examples = [text for text in texts if text.is_example]
    others = [text for text in texts if not text.is_example] if examples else texts
    return [
        _segment(part[start : start + MAX_CHUNKS], is_example=part is examples)
        for part in (others, examples)
        for start in range(0, len(part), MAX_CHUNKS)
    ]


def _segment(texts: Sequence[ChunkText], *, is_example: bool) -> Segment:
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
    words = [] if is_example else sorted({*chain.from_iterable(map(_words.__getitem__, distinct))})
    return Segment(
        postings if is_example else _with_definitions(postings, texts), words, is_example
    )


def _with_definitions(postings: Postings, texts: Sequence[ChunkText]) -> Postings:
    """Add the names that each chunk defines, whatever their case."""
    return postings.marked(
        [
            (term_hash(DEFINES + name.lower()), slot)
            for slot, text in enumerate(texts)
            for name in defined_names(text.symbol, text.content)
        ]
    )


def _pieces(texts: Sequence[ChunkText]) -> Iterator[list[str]]:
    """Pieces of each chunk; its document's pieces are computed once for consecutive chunks."""
    document: tuple[str, str | None] | None = None
    shared: list[str] = []
    for text in texts:
        if document != (text.uri, text.title):
            document = text.uri, text.title
            shared = pieces(about_document(*document))
        own = pieces(about_chunk(text.symbol, text.heading_path, text.context))
        around = pieces(text.surroundings) if text.surroundings else ()
        yield [*pieces(text.content), *around, *own, *shared]


def _hashes_of_piece(piece: str) -> tuple[int, ...]:
    return tuple(map(term_hash, terms_of(piece)))


_remembered = TextCache(_hashes_of_piece)
_words = TextCache(words_of_piece)
