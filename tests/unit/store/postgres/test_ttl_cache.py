"""Caches with a time and size limit."""

from __future__ import annotations

import numpy as np
import pytest

from store.postgres import ttl_cache
from store.postgres.ttl_cache import TTLCache
from store.search.keyword.bm25 import Segment
from store.search.keyword.retriever import MAX_GENERATIONS, SegmentCache


def test_a_value_is_forgotten_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value expires a fixed time after it was last put."""
    now = 100.0
    monkeypatch.setattr(ttl_cache, "monotonic", lambda: now)
    recent: TTLCache[int, str] = TTLCache(5.0)
    recent.put(1, "one")
    now = 104.0
    assert recent.get(1) == "one"
    recent.put(1, "newer")
    now = 108.0
    assert recent.get(1) == "newer"
    now = 109.5
    assert recent.get(1) is None
    assert recent.get(2) is None


def test_the_age_of_a_value_counts_from_its_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reading yields a value that is old when it arrives."""
    monkeypatch.setattr(ttl_cache, "monotonic", lambda: 100.0)
    recent: TTLCache[int, str] = TTLCache(5.0)
    recent.put(1, "old", at=94.0)
    recent.put(2, "recent", at=96.0)
    assert [recent.get(key) for key in (1, 2)] == [None, "recent"]


def test_only_the_last_ones_put_are_kept() -> None:
    """A full cache keeps the values that were put last."""
    recent: TTLCache[int, str] = TTLCache(60.0, limit=2)
    recent.put(1, "one")
    recent.put(2, "two")
    recent.put(1, "one")
    recent.put(3, "three")
    assert [recent.get(key) for key in (1, 2, 3)] == ["one", None, "three"]
    assert len(recent) == 2


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
