"""Builds keyword segments, i.e. postings and words, from chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from store.keyword.postings import MAX_CHUNKS, Postings, term_hash
from store.keyword.remembering import Remembered
from store.keyword.tokens import pieces, terms_of
from store.keyword.vocabulary import words_of

__all__ = ["ChunkText", "Segment", "about_chunk", "about_document", "segments_of"]

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


_remembered = Remembered(_hashes_of_piece)
