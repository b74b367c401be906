"""Timings by stage."""

from __future__ import annotations

from time import perf_counter

__all__ = ["Stopwatch"]


class Stopwatch:
    """Splits elapsed time into named laps, in milliseconds."""

    def __init__(self) -> None:
        self._last = perf_counter()
        self.milliseconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Record the time since the last lap as ``name``."""
        now = perf_counter()
        self.milliseconds[name] = round((now - self._last) * 1000, 3)
        self._last = now
