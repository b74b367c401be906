"""Remembers what was made of short texts, since the same come again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Remembered"]

Value = TypeVar("Value")


class Remembered(dict[str, Value]):
    """A mapping that makes its values when they are asked for, and keeps those of short keys.

    Looking up is all done in C, which is what it is for. Forgets everything when it is full.
    """

    LIMIT = 200_000
    LONGEST = 64
    """Longer keys seldom come again, and hostile ones would fill the memory."""

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
