"""Cache of values derived from short texts, because the same texts recur often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Remembered"]

Value = TypeVar("Value")


class Remembered(dict[str, Value]):
    """A mapping that computes missing values, and caches those of short keys.

    It is a dict so that a lookup runs entirely in C. When it is full, it is cleared.
    """

    LIMIT = 200_000
    LONGEST = 64
    """Longer keys rarely recur, and hostile ones would fill the memory."""

    def __init__(self, make: Callable[[str], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: str) -> Value:
        value = self._make(key)
        if len(key) <= self.LONGEST:
            if len(self) >= self.LIMIT:
                self.clear()
            self[key] = value
        return value
