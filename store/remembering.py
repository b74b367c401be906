"""Memory for what is looked up often, seldom changes, and may go away."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["Recent"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Keeps values for some seconds, and so many of them at most: the last ones put."""

    def __init__(self, seconds: float, limit: int = 1024) -> None:
        self._seconds = seconds
        self._limit = limit
        self._values: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value, or None: never put, or too long ago."""
        put_at, value = self._values.get(key, (0.0, None))
        return value if monotonic() - put_at <= self._seconds else None

    def put(self, key: Key, value: Value) -> None:
        """Keep a value from now on."""
        self._values[key] = monotonic(), value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)
