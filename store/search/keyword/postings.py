"""Postings: the chunks of a segment that contain a term, with counts; and their form in rows.

A term is identified by a 64-bit hash of its text, a chunk by its slot in the segment (16 bits).
Raw counts are stored, not scores: a score depends on the whole generation and is computed at query
time, so that segments can be merged, and BM25 tuned, without reading any text again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

__all__ = [
    "INLINE_CHUNKS",
    "MAX_CHUNKS",
    "PACKED_BYTES",
    "Postings",
    "decode_chunks",
    "decode_inline",
    "encode_chunks",
    "encode_inline",
    "pack",
    "starts_of_runs",
    "term_hash",
    "unpack",
]

_SLOT_BITS = 16
MAX_CHUNKS = 1 << _SLOT_BITS
"""A segment holds at most this many chunks, so that a slot in it fits into 16 bits."""

MAX_COUNT = 255
PACKED_BYTES = 3
"""Size of a chunk in the postings of a term."""

_HASHES = 1 << 13
"""Hashes that are kept: those of frequent terms. The others take less time than their memory."""

Int64s = npt.NDArray[np.int64]


@lru_cache(maxsize=_HASHES)
def term_hash(term: str) -> int:
    """Stable signed 64-bit hash: the first 8 bytes of BLAKE2b, little-endian."""
    return int.from_bytes(
        hashlib.blake2b(term.encode(), digest_size=8).digest(), "little", signed=True
    )


def pack(slots: npt.NDArray[np.uint16], counts: npt.NDArray[np.uint8]) -> bytes:
    """Bytes of one term's postings: all slots (2 bytes each), then all counts (1 byte each)."""
    return slots.tobytes() + counts.tobytes()


def unpack(data: bytes) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Inverse of ``pack``, without a copy."""
    count = len(data) // PACKED_BYTES
    return np.frombuffer(data, np.uint16, count), np.frombuffer(data, np.uint8, count, 2 * count)


@dataclass(frozen=True, eq=False)
class Postings:
    """An inverted index of some chunks.

    ``chunk_ids`` and ``lengths`` (in terms) have one item per chunk. ``terms`` (hashes) is sorted.
    The postings of ``terms[i]`` are ``slots`` (slots of chunks) and ``counts`` from ``starts[i]``
    to ``starts[i + 1]``, with ascending slots.
    """

    chunk_ids: Int64s
    lengths: npt.NDArray[np.uint32]
    terms: Int64s
    starts: Int64s
    slots: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.uint8]

    @classmethod
    def build(cls, rows: Sequence[tuple[int, Sequence[str]]]) -> Postings:
        """Index chunks, given as ids with all their terms in order, repetitions included."""
        hashes = map(term_hash, chain.from_iterable(terms for _, terms in rows))
        return cls.of_hashes(
            np.array([chunk_id for chunk_id, _ in rows], np.int64),
            np.array([len(terms) for _, terms in rows], np.uint32),
            np.fromiter(hashes, np.int64, sum(len(terms) for _, terms in rows)),
        )

    @classmethod
    def of_hashes(
        cls, chunk_ids: Int64s, lengths: npt.NDArray[np.uint32], hashes: Int64s
    ) -> Postings:
        """Index chunks; ``hashes``: hashes of all terms, chunk after chunk."""
        slots = np.repeat(np.arange(len(chunk_ids), dtype=np.int64), lengths)
        ordered = np.sort(hashes)
        terms = ordered[starts_of_runs(ordered)]
        if len(starts_of_runs(terms >> _SLOT_BITS)) < len(terms) or len(chunk_ids) > MAX_CHUNKS:
            return cls._of_occurrences(chunk_ids, lengths, hashes, slots, None)
        # the upper bits of the hashes distinguish all terms: term and slot fit into one number, and
        # sorting numbers is several times faster than sorting slots by their terms
        keys = np.sort(hashes & ~(MAX_CHUNKS - 1) | slots)
        first = starts_of_runs(keys)
        keys, counts = keys[first], np.diff(np.append(first, len(keys)))
        starts = starts_of_runs(keys >> _SLOT_BITS)
        return cls(
            chunk_ids=chunk_ids,
            lengths=lengths,
            terms=terms,
            starts=np.append(starts, len(keys)).astype(np.int64),
            slots=keys.astype(np.uint16),
            counts=np.minimum(counts, MAX_COUNT).astype(np.uint8),
        )

    def marked(self, marks: Sequence[tuple[int, int]]) -> Postings:
        """Add postings with a count of 0, given as hashes of new terms with slots of chunks.

        They are read like others, but change neither a score nor the length of a chunk.
        """
        if not marks:
            return self
        terms, slots = np.array(sorted(set(marks)), np.int64).T
        first = starts_of_runs(terms)
        sizes = np.diff(np.append(first, len(terms)))
        places = np.searchsorted(self.terms, terms[first])
        rows = np.repeat(self.starts[places], sizes)
        ends = np.insert(np.diff(self.starts), places, sizes).cumsum()
        return Postings(
            chunk_ids=self.chunk_ids,
            lengths=self.lengths,
            terms=np.insert(self.terms, places, terms[first]),
            starts=np.concatenate([np.zeros(1, np.int64), ends]),
            slots=np.insert(self.slots, rows, slots.astype(np.uint16)),
            counts=np.insert(self.counts, rows, np.uint8(0)),
        )

    @classmethod
    def merge(cls, parts: Sequence[Postings], alive: Int64s | None = None) -> Postings:
        """Merge indexes into one, without the chunks whose id is not in ``alive``.

        The parts must not have chunks in common.
        """
        bases = np.cumsum([0] + [len(part.chunk_ids) for part in parts])
        chunk_ids = np.concatenate([part.chunk_ids for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        hashes = np.concatenate([part.terms_of_postings for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        slots = np.concatenate(
            [part.slots + base for part, base in zip(parts, bases[:-1], strict=True)]
        )
        if alive is not None:
            kept = np.isin(chunk_ids, alive)
            moved = np.cumsum(kept) - 1
            of_kept = kept[slots]
            hashes, counts, slots = hashes[of_kept], counts[of_kept], moved[slots[of_kept]]
            chunk_ids, lengths = chunk_ids[kept], lengths[kept]
        return cls._of_occurrences(chunk_ids, lengths, hashes, slots, counts)

    @classmethod
    def _of_occurrences(
        cls,
        chunk_ids: Int64s,
        lengths: npt.NDArray[np.uint32],
        hashes: Int64s,
        slots: Int64s,
        counts: npt.NDArray[np.uint8] | None,
    ) -> Postings:
        """Group occurrences by term and slot; their slots must ascend."""
        if len(chunk_ids) > MAX_CHUNKS:
            raise ValueError(f"a segment holds at most {MAX_CHUNKS} chunks, not {len(chunk_ids)}")
        order = np.argsort(hashes, kind="stable")
        hashes, slots = hashes[order], slots[order]
        if counts is None:
            first = starts_of_runs(hashes, slots)
            ends = np.append(first[1:], len(hashes))
            counts = np.minimum(ends - first, MAX_COUNT).astype(np.uint8)
            hashes, slots = hashes[first], slots[first]
        else:
            counts = counts[order]
        starts = starts_of_runs(hashes)
        return cls(
            chunk_ids=chunk_ids,
            lengths=lengths,
            terms=hashes[starts],
            starts=np.append(starts, len(hashes)).astype(np.int64),
            slots=slots.astype(np.uint16),
            counts=counts,
        )

    @property
    def terms_of_postings(self) -> Int64s:
        """The term of each posting."""
        return np.repeat(self.terms, np.diff(self.starts))

    @cached_property
    def slot_of_term(self) -> Mapping[int, int]:
        """Index into ``terms`` by hash."""
        return {term: index for index, term in enumerate(self.terms.tolist())}

    def find(self, term: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]] | None:
        """Slots and counts of a term. Returns None if no chunk contains it."""
        index = self.slot_of_term.get(term)
        if index is None:
            return None
        span = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return self.slots[span], self.counts[span]


def starts_of_runs(*keys: Int64s) -> Int64s:
    """Index at which each run of equal keys begins."""
    size = len(keys[0])
    if size == 0:
        return np.empty(0, np.int64)
    changed = np.zeros(size, np.bool_)
    changed[0] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)


INLINE_CHUNKS = 256
"""Segments up to this size have their postings in their own row."""

_CHUNK_BYTES = 12
_TERM_BYTES = 12
_HEADER_BYTES = 4


def encode_chunks(postings: Postings) -> bytes:
    """Encode chunks: ids (8 bytes each), then lengths (4 bytes each)."""
    return postings.chunk_ids.tobytes() + postings.lengths.tobytes()


def decode_chunks(
    data: bytes,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    """Inverse of ``encode_chunks``."""
    count = len(data) // _CHUNK_BYTES
    return np.frombuffer(data, np.int64, count), np.frombuffer(data, np.uint32, count, 8 * count)


def encode_inline(postings: Postings) -> bytes:
    """Encode postings: number of terms; hashes; number of postings of each; places; counts."""
    sizes = np.diff(postings.starts).astype(np.uint32)
    return b"".join(
        (
            np.uint32(len(postings.terms)).tobytes(),
            postings.terms.tobytes(),
            sizes.tobytes(),
            postings.slots.tobytes(),
            postings.counts.tobytes(),
        )
    )


def decode_inline(chunks: bytes, data: bytes) -> Postings:
    """Decode the postings of a small segment from both of its columns."""
    chunk_ids, lengths = decode_chunks(chunks)
    (terms,) = np.frombuffer(data, np.uint32, 1)
    offset = _HEADER_BYTES + _TERM_BYTES * int(terms)
    sizes = np.frombuffer(data, np.uint32, int(terms), _HEADER_BYTES + 8 * int(terms))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    total = int(starts[-1])
    return Postings(
        chunk_ids=chunk_ids,
        lengths=lengths,
        terms=np.frombuffer(data, np.int64, int(terms), _HEADER_BYTES),
        starts=starts,
        slots=np.frombuffer(data, np.uint16, total, offset),
        counts=np.frombuffer(data, np.uint8, total, offset + 2 * total),
    )
