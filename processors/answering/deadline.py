"""A question's time: how much of it is left, and an end that nothing can put off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from events.entries import order
from events.models import QueryRequested
from runtime import protocol

__all__ = ["Abandoning", "time_left"]

Result = TypeVar("Result")


def time_left(event: QueryRequested, entry_id: str, default: timedelta, now: datetime) -> timedelta:
    """What is left of the asker's patience; zero or below: nothing.

    The asker's clock may be hours off, so what counts is the time from the event's ``time`` to its
    deadline, both by that clock, beginning when the log took the entry, by the log's clock.
    ``default`` is the patience of a question that names no deadline. It is never more than the
    protocol allows.
    """
    deadline = event.data.deadline
    if deadline is not None and "time" not in event.model_fields_set:
        return min(deadline - now, protocol.QUERY_DEADLINE)
    patience = default if deadline is None else deadline - event.time
    waited_seconds = now.timestamp() - order(entry_id)[0] / 1000
    return min(patience, protocol.QUERY_DEADLINE) - timedelta(seconds=max(0.0, waited_seconds))


class Abandoning:
    """Runs work under a time limit, and doesn't wait for what is cancelled to clear up.

    A driver that tells the server about a cancellation waits for its answer, for a minute where the
    server hangs; no reply shall wait with it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Result], limit: timedelta) -> Result:
        """Result of the work.

        Raises:
            TimeoutError: it isn't done within ``limit``.
        """
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            done, _ = await asyncio.wait({task}, timeout=max(0.0, limit.total_seconds()))
        finally:
            task.cancel()
        if not done:
            raise TimeoutError
        return task.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()
