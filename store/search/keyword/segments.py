"""Segments: immutable parts of a generation's keyword index, as rows.

A small segment has its postings in its own row, so that indexing one document writes one row. A
large segment has a row per term, so that a query reads only its own terms. In the background, many
small segments are merged into few large ones (``store.search.maintenance``).
"""

from __future__ import annotations

import numpy as np

from store.search.keyword.postings import Postings

__all__ = ["INLINE_CHUNKS", "decode_chunks", "decode_inline", "encode_chunks", "encode_inline"]

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
