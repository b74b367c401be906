"""Postings of very many chunks: what ``writing`` makes of few, with less work for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from store.keyword.postings import Postings, term_hash
from store.keyword.remembering import Remembered
from store.keyword.tokens import pieces, terms_of
from store.keyword.vocabulary import words_of
from store.keyword.writing import about_chunk, about_document

__all__ = ["SegmentBuilder"]


def _hashes_of_piece(piece: str) -> tuple[int, ...]:
    return tuple(map(term_hash, terms_of(piece)))


_remembered = Remembered(_hashes_of_piece)


class SegmentBuilder:
    """Gathers chunks, up to ``MAX_CHUNKS``, for one segment.

    A text is never turned into terms as such: the hashes of the terms of its pieces are remembered,
    and the terms themselves are looked at once for each distinct piece.
    """

    def __init__(self) -> None:
        self._chunk_ids: list[int] = []
        self._hashes: list[list[int]] = []
        self._pieces: set[str] = set()

    def add_document(
        self,
        uri: str,
        title: str | None,
        chunks: Iterable[tuple[int, str, str | None, Sequence[str]]],
    ) -> None:
        """Add a document's chunks: id, text, symbol and headings of each."""
        shared = pieces(about_document(uri, title))
        for chunk_id, content, symbol, heading_path in chunks:
            own = pieces(about_chunk(symbol, heading_path))
            found = [*pieces(content), *own, *shared]
            self._chunk_ids.append(chunk_id)
            self._hashes.append(list(chain.from_iterable(map(_remembered.__getitem__, found))))
            self._pieces.update(found)

    def build(self) -> Postings:
        """The index of all chunks added."""
        return Postings.of_hashes(
            np.array(self._chunk_ids, np.int64),
            np.array([len(hashes) for hashes in self._hashes], np.uint32),
            np.fromiter(chain.from_iterable(self._hashes), np.int64),
        )

    def words(self) -> list[str]:
        """The distinct words that misspelt ones can be corrected to."""
        return words_of(chain.from_iterable(map(terms_of, self._pieces)))
