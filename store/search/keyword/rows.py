"""Rows of a large segment: one for each frequent term, and bundles of the other terms.

Most of the terms of a segment occur in few of its chunks. A row for each of them would be larger by
its head and its index entries than by its postings. So they share rows, by the upper bits of their
hashes. The number of these bits grows with the segment, so that a bundle stays small.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from store.search.keyword.postings import Int64s, Postings, starts_of_runs, unpack

__all__ = ["BUNDLE_KEYS", "WantedRows", "from_rows", "rows_of", "terms_of_bundle"]

_BUNDLE_BITS = (6, 9, 12)
_TERMS_OF_BUNDLE = 80
"""Most terms that a bundle has on average, so that it fits into a page with others."""

_FREQUENT_CHUNKS = 64
"""A term that is in so many chunks of a segment has a row of its own."""

BUNDLE_KEYS = range(1 << _BUNDLE_BITS[0], 2 << _BUNDLE_BITS[-1])
"""Keys of bundles: a bit that is 1, and the upper bits of the hashes of their terms.

The key of another row is the hash of its term. A term whose hash is in this range is always in a
bundle.
"""

_HASH_BITS = 64
_COUNT_BYTES = 8
_TERM_BYTES = 12

Hits = tuple[int, npt.NDArray[np.uint16], npt.NDArray[np.uint8]]
"""A term, the slots of the chunks that have it, and how often each has it."""


def rows_of(postings: Postings) -> Iterator[tuple[int, bytes]]:
    """Each row of a segment, as its key and its bytes."""
    sizes = np.diff(postings.starts)
    is_key = (postings.terms >= BUNDLE_KEYS.start) & (postings.terms < BUNDLE_KEYS.stop)
    is_own = (sizes >= _FREQUENT_CHUNKS) & ~is_key
    slots, counts = postings.slots.tobytes(), postings.counts.tobytes()
    own = np.flatnonzero(is_own)
    for term, start, end in zip(
        postings.terms[own].tolist(),
        postings.starts[own].tolist(),
        postings.starts[own + 1].tolist(),
        strict=True,
    ):
        yield term, slots[2 * start : 2 * end] + counts[start:end]
    in_bundle = np.repeat(~is_own, sizes)
    yield from _bundles(
        postings.terms[~is_own],
        sizes[~is_own],
        postings.slots[in_bundle].tobytes(),
        postings.counts[in_bundle].tobytes(),
    )


def _bundles(
    terms: Int64s, sizes: Int64s, slots: bytes, counts: bytes
) -> Iterator[tuple[int, bytes]]:
    bits = next(
        (bits for bits in _BUNDLE_BITS if len(terms) <= _TERMS_OF_BUNDLE << bits), _BUNDLE_BITS[-1]
    )
    keys = _bundle_keys(terms, bits)
    first = starts_of_runs(keys)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    borders = [*first.tolist(), len(terms)]
    for key, low, high in zip(keys[first].tolist(), borders, borders[1:], strict=False):
        start, end = int(ends[low]), int(ends[high])
        head = np.int64(high - low).tobytes() + terms[low:high].tobytes()
        sums = (ends[low + 1 : high + 1] - start).astype(np.uint32).tobytes()
        yield key, b"".join((head, sums, slots[2 * start : 2 * end], counts[start:end]))


def from_rows(
    chunk_ids: Int64s, lengths: npt.NDArray[np.uint32], rows: Iterable[tuple[int, bytes]]
) -> Postings:
    """Inverse of ``rows_of``; rows in any order, also those of a segment without bundles.

    Raises:
        ValueError: a row cannot be read.
    """
    terms = [np.empty(0, np.int64)]
    sizes = [np.empty(0, np.int64)]
    slots = [np.empty(0, np.uint16)]
    counts = [np.empty(0, np.uint8)]
    for key, data in rows:
        if key in BUNDLE_KEYS:
            bundled, sizes_of_terms = terms_of_bundle(data), _sizes(data)
            if not _is_found(key, bundled):
                raise ValueError("a bundle holds terms that queries do not find in it")
            body = unpack(data[_COUNT_BYTES + _TERM_BYTES * len(bundled) :])
            if np.any(sizes_of_terms <= 0) or len(body[0]) != sizes_of_terms.sum():
                raise ValueError("a bundle holds other postings than its head says")
            terms.append(bundled)
            sizes.append(sizes_of_terms)
        else:
            body = unpack(data)
            terms.append(np.array([key], np.int64))
            sizes.append(np.array([len(body[0])], np.int64))
        slots.append(body[0])
        counts.append(body[1])
    return _ordered(chunk_ids, lengths, np.concatenate(terms), np.concatenate(sizes), slots, counts)


def _ordered(
    chunk_ids: Int64s,
    lengths: npt.NDArray[np.uint32],
    terms: Int64s,
    sizes: Int64s,
    slots: Sequence[npt.NDArray[np.uint16]],
    counts: Sequence[npt.NDArray[np.uint8]],
) -> Postings:
    order = np.argsort(terms, kind="stable")
    before = np.cumsum(sizes) - sizes
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[order])])
    places = np.repeat(before[order] - starts[:-1], sizes[order]) + np.arange(starts[-1])
    return Postings(
        chunk_ids=chunk_ids,
        lengths=lengths,
        terms=terms[order],
        starts=starts,
        slots=np.concatenate(slots)[places],
        counts=np.concatenate(counts)[places],
    )


def terms_of_bundle(data: bytes) -> Int64s:
    """Hashes of the terms of a bundle, sorted.

    Raises:
        ValueError: the bundle cannot be read.
    """
    return np.frombuffer(data, np.int64, _terms_in(data), _COUNT_BYTES)


def _terms_in(data: bytes) -> int:
    terms = int.from_bytes(data[:_COUNT_BYTES], "little")
    if _COUNT_BYTES + _TERM_BYTES * terms > len(data):
        raise ValueError("a bundle is smaller than its head says")
    return terms


def _sizes(data: bytes) -> Int64s:
    """Postings of each term of a bundle, of which their ends are stored."""
    terms = _terms_in(data)
    ends = np.frombuffer(data, np.uint32, terms, _COUNT_BYTES + 8 * terms)
    return np.diff(ends, prepend=np.uint32(0)).astype(np.int64)


def _bundle_keys(terms: Int64s, bits: int) -> Int64s:
    return (terms.view(np.uint64) >> np.uint64(_HASH_BITS - bits)).astype(np.int64) | 1 << bits


def _is_found(key: int, terms: Int64s) -> bool:
    """True if queries find the terms in the bundle with this key: they are its own, and sorted."""
    is_sorted = bool(np.all(terms[1:] > terms[:-1]))
    return is_sorted and bool(np.all(_bundle_keys(terms, key.bit_length() - 1) == key))


class WantedRows:
    """The rows that can hold some terms, and how to find the terms in them."""

    def __init__(self, terms: Iterable[int]) -> None:
        self._terms: dict[int, list[int]] = defaultdict(list)
        for term in terms:
            for key in _keys(term):
                self._terms[key].append(term)

    @property
    def keys(self) -> list[int]:
        """Keys of the rows, of segments of any size."""
        return list(self._terms)

    def hits(self, key: int, data: bytes) -> Iterator[Hits]:
        """Wanted terms in a row with their postings.

        Raises:
            ValueError: the row cannot be read.
        """
        if key not in BUNDLE_KEYS:
            yield key, *unpack(data)
            return
        bundled = _terms_in(data)
        hashes = memoryview(data)[_COUNT_BYTES : _COUNT_BYTES + 8 * bundled].cast("q")
        for term in self._terms[key]:
            index = bisect_left(hashes, term)
            if index < bundled and hashes[index] == term:
                yield term, *_postings_at(data, bundled, index)


def _postings_at(
    data: bytes, bundled: int, index: int
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    ends = memoryview(data)[_COUNT_BYTES + 8 * bundled : _COUNT_BYTES + _TERM_BYTES * bundled]
    sums = ends.cast("I")
    start, end = sums[index - 1] if index else 0, sums[index]
    slots = _COUNT_BYTES + _TERM_BYTES * bundled
    return (
        np.frombuffer(data, np.uint16, end - start, slots + 2 * start),
        np.frombuffer(data, np.uint8, end - start, slots + 2 * sums[-1] + start),
    )


def _keys(term: int) -> Iterator[int]:
    upper = term % (1 << _HASH_BITS)
    yield term
    for bits in _BUNDLE_BITS:
        yield 1 << bits | upper >> _HASH_BITS - bits
