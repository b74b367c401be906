"""The cache of segments, which is limited by size and by number, and the bits of chosen chunks."""

from __future__ import annotations

import numpy as np

from store.search.keyword.bm25 import Segment
from store.search.keyword.retriever import MAX_GENERATIONS, Narrowed, SegmentCache


def _segment(chunks: int) -> Segment:
    return Segment(np.arange(chunks), np.ones(chunks, np.uint32), None)


def test_segments_of_generations_asked_long_ago_are_dropped() -> None:
    """The segment cache drops generations by size and by number."""
    cache = SegmentCache(limit_bytes=_segment(100).size_bytes * 2)
    for generation_id in (1, 2, 3):
        cache.put(generation_id, {generation_id: _segment(100)})
    assert [len(cache.get(one)) for one in (1, 2, 3)] == [0, 1, 1]
    for generation_id in range(10, 10 + MAX_GENERATIONS):
        cache.put(generation_id, {})
    assert cache.size_bytes == 0


def test_bits_stand_for_the_ids_from_the_first_one_on() -> None:
    """There are none for no ids, nor for ids that are far apart."""
    for ids in ([7], [7, 8, 15, 22, 900], [1 << 40, (1 << 40) + 3]):
        bits = Narrowed(np.array(ids, np.int64), "", is_rare=True).bits()
        assert bits is not None
        data, first = bits
        assert [first + at for at in range(8 * len(data)) if data[at // 8] >> at % 8 & 1] == ids
    for ids in ([], [1, 1 << 40]):
        assert Narrowed(np.array(ids, np.int64), "", is_rare=True).bits() is None
