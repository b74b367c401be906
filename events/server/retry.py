"""Retries of idempotent operations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from events.server.connection import redis_errors
from runtime.errors import Unavailable
from runtime.intervals import Backoff

__all__ = ["PATIENCE", "retrying"]

PATIENCE = timedelta(seconds=10)
_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=1))

log = logging.getLogger(__name__)
Result = TypeVar("Result")


async def retrying(
    operation: Callable[[], Awaitable[Result]], patience: timedelta = PATIENCE
) -> Result:
    """Run an idempotent operation until Redis answers, for at most ``patience``.

    The delays double from 50 ms to 1 s, with jitter, so that clients don't reconnect all at once.

    Raises:
        Unavailable: Redis still can't be reached.
        LogFull, ConfigurationError: see ``redis_errors``; these are not retried.
    """
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    failures = 0
    while True:
        try:
            with redis_errors():
                return await operation()
        except Unavailable as error:
            delay_seconds = _BACKOFF.delay(failures).total_seconds()
            if asyncio.get_running_loop().time() + delay_seconds > deadline:
                raise
            values = {"error": str(error), "delay_seconds": delay_seconds}
            log.warning("redis.retry", extra=values)
        await asyncio.sleep(delay_seconds)
        failures += 1
