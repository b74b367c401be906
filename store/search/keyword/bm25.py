"""BM25 over the segments of a generation, with numpy.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, with the
always positive IDF of Lucene. The number of chunks, their mean length and each term's document
frequency are those of the generation, chunks deleted since the last merge included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from store.search.keyword.postings import MAX_CHUNKS, Postings

__all__ = ["K1", "B", "Matches", "ScoredChunks", "Segment", "TermHits", "factors_of", "score"]

K1 = 1.2
"""Saturation: the lower, the sooner further occurrences of a term stop to matter."""

B = 0.75
"""Length normalisation: the higher, the less occurrences in a long chunk count."""

_BLOCK = 256

Float32s = npt.NDArray[np.float32]
Value = TypeVar("Value", bound=np.generic)


@dataclass(eq=False)
class Segment:
    """A segment in memory, immutable except for the cache of its norms."""

    chunk_ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.uint32]
    inline: Postings | None
    _norms: tuple[float, Float32s] | None = field(default=None, repr=False)

    @property
    def size_bytes(self) -> int:
        """Approximate memory in use."""
        chunks = 16 * len(self.chunk_ids)
        return chunks + (0 if self.inline is None else 100 * len(self.inline.terms))

    def norms(self, mean_length: float) -> Float32s:
        """Summand that BM25 adds to a term's count, per chunk: higher for longer chunks."""
        if self._norms is None or self._norms[0] != mean_length:
            self._norms = (mean_length, _norms(self.lengths, mean_length))
        return self._norms[1]


class TermHits(NamedTuple):
    """One query term's postings in one segment."""

    term: int
    slots: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Matches:
    """Segments of a generation, and the postings of a query's terms in each, in the same order.

    ``total_terms`` is the sum of the lengths of all chunks.
    """

    segments: Sequence[Segment]
    hits: Sequence[Sequence[TermHits]]
    total_terms: int

    @cached_property
    def chunks(self) -> int:
        """Number of chunks in all segments."""
        return sum(len(segment.chunk_ids) for segment in self.segments)

    @cached_property
    def document_frequencies(self) -> Mapping[int, int]:
        """Number of chunks in which each term occurs; terms that occur nowhere are absent."""
        frequencies: dict[int, int] = defaultdict(int)
        for hits in self.hits:
            for hit in hits:
                frequencies[hit.term] += len(hit.slots)
        return dict(frequencies)


class ScoredChunks:
    """The score of every chunk that contains a query term."""

    def __init__(self, parts: Sequence[tuple[npt.NDArray[np.int64], Float32s]]) -> None:
        self._parts = parts

    def best(self, limit: int) -> list[tuple[int, float]]:
        """The best ``limit`` chunks or fewer, best first; chunks with equal scores by id."""
        tops = [(ids[chosen], scores[chosen]) for ids, scores, chosen in self._tops(limit)]
        return _ranked(tops, limit)

    def best_of(self, chunk_ids: Sequence[int], limit: int) -> list[tuple[int, float]]:
        """The best among some chunks."""
        wanted = np.array(chunk_ids, np.int64)
        kept = []
        for ids, scores in self._parts:
            mask = np.isin(ids, wanted) & (scores > 0)
            kept.append((ids[mask], scores[mask]))
        return _ranked(kept, limit)

    def _tops(
        self, limit: int
    ) -> Iterable[tuple[npt.NDArray[np.int64], Float32s, npt.NDArray[np.intp]]]:
        for ids, scores in self._parts:
            yield ids, scores, _top(scores, limit)


_Pair = tuple[Segment, Sequence[TermHits]]


def factors_of(matches: Matches, weights: Mapping[int, float]) -> dict[int, float]:
    """Factor of each term that occurs, by its hash: the most that it can add to a chunk's score."""
    return {
        term: weights[term] * (K1 + 1) * _idf(matches.chunks, frequency)
        for term, frequency in matches.document_frequencies.items()
    }


def score(matches: Matches, weights: Mapping[int, float]) -> ScoredChunks:
    """BM25 of every chunk; ``weights``: factor of each query term's contribution, by its hash."""
    factors = factors_of(matches, weights)
    mean_length = matches.total_terms / max(1, matches.chunks)
    pairs = [pair for pair in zip(matches.segments, matches.hits, strict=True) if pair[1]]
    small = [pair for pair in pairs if pair[0].inline is not None]
    parts = []
    if small:
        norms = _norms(np.concatenate([segment.lengths for segment, _ in small]), mean_length)
        parts.append(_score_together(small, norms, factors))
    for group in _groups(pair for pair in pairs if pair[0].inline is None):
        norms = _joined([segment.norms(mean_length) for segment, _ in group])
        parts.append(_score_together(group, norms, factors))
    return ScoredChunks(parts)


def _groups(pairs: Iterable[_Pair]) -> Iterator[list[_Pair]]:
    """Divide large segments into groups of no more chunks than the largest of them may have."""
    group: list[_Pair] = []
    chunks = 0
    for segment, hits in pairs:
        chunks += len(segment.chunk_ids)
        if group and chunks > MAX_CHUNKS:
            yield group
            group, chunks = [], len(segment.chunk_ids)
        group.append((segment, hits))
    if group:
        yield group


def _score_together(
    pairs: Sequence[_Pair], norms: Float32s, factors: Mapping[int, float]
) -> tuple[npt.NDArray[np.int64], Float32s]:
    """Score segments as if they were one, so that a hundred cost little more than one."""
    bases = np.cumsum([0] + [len(segment.chunk_ids) for segment, _ in pairs]).tolist()
    hits = [hit for _, segment_hits in pairs for hit in segment_hits]
    offsets = [
        base for base, (_, segment_hits) in zip(bases, pairs, strict=False) for _ in segment_hits
    ]
    chunk_ids = _joined([segment.chunk_ids for segment, _ in pairs])
    return chunk_ids, _sum(norms, hits, offsets, factors)


def _joined(parts: Sequence[npt.NDArray[Value]]) -> npt.NDArray[Value]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _sum(
    norms: Float32s,
    hits: Sequence[TermHits],
    offsets: Sequence[int],
    factors: Mapping[int, float],
) -> Float32s:
    """Each chunk's score: the sum over its postings of factor · count / (count + norm)."""
    sizes = [len(hit.slots) for hit in hits]
    slots = np.concatenate([hit.slots for hit in hits]).astype(np.intp)
    if any(offsets):
        slots += np.repeat(np.array(offsets, np.intp), sizes)
    counts = np.concatenate([hit.counts for hit in hits]).astype(np.float32)
    scores = np.repeat(np.array([factors[hit.term] for hit in hits], np.float32), sizes)
    scores *= counts
    counts += norms[slots]
    scores /= counts
    return np.bincount(slots, scores, len(norms)).astype(np.float32)


def _norms(lengths: npt.NDArray[np.uint32], mean_length: float) -> Float32s:
    return (K1 * (1 - B) + K1 * B / max(mean_length, 1e-9) * lengths).astype(np.float32)


def _idf(chunks: int, frequency: int) -> float:
    return math.log(1 + (chunks - frequency + 0.5) / (frequency + 0.5))


def _top(scores: Float32s, limit: int) -> npt.NDArray[np.intp]:
    """Indexes of the ``limit`` highest scores above 0 and of all that equal the last, unordered.

    Searches only blocks whose maximum is among the ``limit`` highest: no other can hold one.
    """
    whole = len(scores) // _BLOCK
    if whole <= limit:
        return _top_of(scores, np.flatnonzero(scores > 0), limit)
    maxima = scores[: whole * _BLOCK].reshape(whole, _BLOCK).max(axis=1)
    blocks = np.flatnonzero(maxima >= _nth_highest(maxima, limit))
    inside = (blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
    rest = np.arange(whole * _BLOCK, len(scores))
    return _top_of(scores, np.concatenate([inside, rest]), limit)


def _top_of(scores: Float32s, slots: npt.NDArray[np.intp], limit: int) -> npt.NDArray[np.intp]:
    slots = slots[scores[slots] > 0]
    if len(slots) <= limit:
        return slots
    return slots[scores[slots] >= _nth_highest(scores[slots], limit)]


def _nth_highest(values: Float32s, n: int) -> float:
    return float(np.partition(values, len(values) - n)[len(values) - n])


def _ranked(
    parts: Sequence[tuple[npt.NDArray[np.int64], Float32s]], limit: int
) -> list[tuple[int, float]]:
    if not parts:
        return []
    ids = np.concatenate([ids for ids, _ in parts])
    scores = np.concatenate([scores for _, scores in parts])
    order = np.lexsort((ids, -scores))[:limit]
    return list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))
