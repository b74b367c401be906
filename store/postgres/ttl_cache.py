"""Cache for values that are looked up often, rarely change, and may disappear."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["TTLCache"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class TTLCache(Generic[Key, Value]):
    """Keeps the latest ``limit`` values, each for some seconds."""

    def __init__(self, seconds: float, limit: int = 1024) -> None:
        self._seconds = seconds
        self._limit = limit
        self._values: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value. Returns None if it was never put, or too long ago."""
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
