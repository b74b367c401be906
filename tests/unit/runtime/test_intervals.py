"""Delays between attempts, and caches with a time limit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runtime import intervals
from runtime.intervals import Backoff, TTLCache, until_tick

FIRST, LONGEST = timedelta(seconds=1), timedelta(seconds=10)


def test_delays_double_up_to_the_longest() -> None:
    """Without jitter, the delays are exact."""
    backoff = Backoff(FIRST, LONGEST, jitter=0)
    delays = [backoff.delay(failures) for failures in (0, 1, 2, 3, 4, 10_000)]
    assert [delay.total_seconds() for delay in delays] == [1, 2, 4, 8, 10, 10]


def test_part_of_a_delay_is_random() -> None:
    """The rest of it is certain, so that an attempt is never immediate."""
    delays = {Backoff(FIRST, LONGEST, jitter=0.5).delay(1) for _ in range(100)}
    assert len(delays) > 1
    assert min(delays) >= FIRST
    assert max(delays) <= 2 * FIRST


def test_tasks_with_one_interval_wake_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick is a multiple of the interval; a task that wakes just before it waits for the next."""
    for now, wanted in ((100.0, 2.0), (100.5, 1.5), (101.7, 0.3), (101.8, 2.2), (101.9999, 2.0001)):
        monkeypatch.setattr(intervals, "monotonic", lambda now=now: now)
        waited = until_tick(timedelta(seconds=2)).total_seconds()
        assert waited == pytest.approx(wanted)


def test_a_value_is_forgotten_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value expires a fixed time after it was last put."""
    now = 100.0
    monkeypatch.setattr(intervals, "monotonic", lambda: now)
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
    monkeypatch.setattr(intervals, "monotonic", lambda: 100.0)
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
