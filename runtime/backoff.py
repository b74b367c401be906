"""Delays between attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

__all__ = ["Backoff"]

_MOST_DOUBLINGS = 24


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
