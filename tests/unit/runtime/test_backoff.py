"""Delays between attempts grow, stay below a limit, and differ between processes."""

from __future__ import annotations

from datetime import timedelta

from runtime.backoff import Backoff

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
