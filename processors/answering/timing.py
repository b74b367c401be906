"""Deadline of a question: the time left, and a time limit that always holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any, TypeVar

from events.models import QueryRequested
from events.streams.entries import order
from runtime import protocol_limits

__all__ = ["Stopwatch", "TimeLimiter", "time_left"]

Result = TypeVar("Result")


def time_left(event: QueryRequested, entry_id: str, default: timedelta, now: datetime) -> timedelta:
    """Return the time left to answer; zero or less if the deadline has passed.

    The asker's clock may be hours off. So the time allowed is the one from the event's ``time`` to
    its deadline, both by the asker's clock, and it starts when the log stored the entry, by the
    log's clock. ``default`` is the time allowed for a question without a deadline. The result is
    never more than the protocol allows.
    """
    deadline = event.data.deadline
    if deadline is not None and "time" not in event.model_fields_set:
        return min(deadline - now, protocol_limits.QUERY_DEADLINE)
    patience = default if deadline is None else deadline - event.time
    waited_seconds = now.timestamp() - order(entry_id)[0] / 1000
    return min(patience, protocol_limits.QUERY_DEADLINE) - timedelta(
        seconds=max(0.0, waited_seconds)
    )


class TimeLimiter:
    """Runs work under a time limit, and does not wait for cancelled work to clean up.

    A driver that sends a cancellation to the server waits for a response, up to a minute if the
    server hangs. The reply must not wait for it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Result], limit: timedelta) -> Result:
        """Run the work and return its result.

        Raises:
            TimeoutError: the work is not done within ``limit``.
        """
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=max(0.0, limit.total_seconds()))
        finally:
            task.cancel()
        if not done:
            raise TimeoutError
        return task.result()

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


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
