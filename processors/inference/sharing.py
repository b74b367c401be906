"""Results by name, each made on its first use and shared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["Shared"]

T = TypeVar("T")


class Shared(Generic[T]):
    """Results by name. Concurrent callers share one task; a failed one is replaced."""

    def __init__(self, make: Callable[[str], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str) -> T:
        """Return the result. Cancelling one caller does not affect the others."""
        task = self._tasks.get(name)
        if task is None or _failed(task):
            task = self._tasks[name] = asyncio.create_task(self._make(name))
        return await asyncio.shield(task)

    async def close(self) -> list[T]:
        """Cancel unfinished tasks, and return the results that exist."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result() for task in tasks if not _failed(task)]


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
