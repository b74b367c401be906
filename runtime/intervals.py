"""Delays between attempts, common ticks of background tasks, and cached values that expire."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["Backoff", "TTLCache", "until_tick"]

Key = TypeVar("Key")
Value = TypeVar("Value")
_MOST_DOUBLINGS = 24
_EARLY = 8
"""Part of an interval, as a divisor, by which a task may wake before its tick."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from ``first`` to ``longest``.

    ``jitter`` is the share of a delay that is random (0 to 1), so that processes that failed
    together do not all try again at once.
    """

    first: timedelta
    longest: timedelta
    jitter: float = 0.5

    def delay(self, failures: int) -> timedelta:
        """Return the delay after an attempt that ``failures`` failed attempts preceded."""
        limited = min(self.first * (1 << min(failures, _MOST_DOUBLINGS)), self.longest)
        return limited * random.uniform(1 - self.jitter, 1)  # noqa: S311 - needs no secrecy


def until_tick(interval: timedelta) -> timedelta:
    """Return the time until a multiple of an interval by the clock; an eighth of it at least.

    Tasks of a machine that wait for it wake together if their intervals have a common multiple.
    Most of the processor time of a task that has nothing to do is that of waking the process.
    """
    left = interval - timedelta(seconds=monotonic() % interval.total_seconds())
    return left if left * _EARLY > interval else left + interval


class TTLCache(Generic[Key, Value]):
    """Keeps the latest ``limit`` values, each for some seconds.

    It is for values that are looked up often, rarely change, and may disappear.
    """

    def __init__(self, seconds: float, limit: int = 1024) -> None:
        self._seconds = seconds
        self._limit = limit
        self._values: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value, or None if it was never put, or too long ago."""
        put_at, value = self._values.get(key, (0.0, None))
        return value if monotonic() - put_at <= self._seconds else None

    def put(self, key: Key, value: Value, at: float | None = None) -> None:
        """Store a value; ``at`` is the time (monotonic) of its reading, by default now."""
        self._values[key] = monotonic() if at is None else at, value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)
