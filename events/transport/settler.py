"""Batched settlement of entries in Redis: acknowledgements and hand-backs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta

import structlog
from faust.types import TP
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.transport.subscription import Subscription

__all__ = ["Settler"]

log = structlog.get_logger(__name__)

_PAUSE = timedelta(milliseconds=200)


class Settler:
    """Sends the settlements that the subscriptions have collected, each entry by its own id."""

    def __init__(
        self, redis: Redis, subscriptions: Mapping[TP, Subscription], linger: timedelta
    ) -> None:
        self._redis = redis
        self._subscriptions = subscriptions
        self._linger = linger
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._sending = asyncio.Lock()

    def wake(self) -> None:
        """Notify that an entry was settled, so there may be something to send."""
        self._changed.set()
        self._settled.set()

    async def worked_off(self) -> None:
        """Wait until no work that has begun is unsettled."""
        while any(subscription.working() for subscription in self._subscriptions.values()):
            self._settled.clear()
            await self._settled.wait()

    async def run(self) -> None:
        """Send for ever, batching all settlements within the linger time."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._linger.total_seconds())
            try:
                await self.flush()
            except (RedisError, OSError) as error:
                log.warning("acknowledgement.failed", error=str(error))
                self.wake()
                await asyncio.sleep(_PAUSE.total_seconds())

    async def flush(self) -> None:
        """Send everything now.

        Raises:
            RedisError: no settlement is lost; the next flush sends it again.
        """
        async with self._sending, self._redis.pipeline(transaction=False) as pipeline:
            self._changed.clear()
            with ExitStack() as stack:
                for subscription in self._subscriptions.values():
                    stack.enter_context(subscription.queue(pipeline))
                await pipeline.execute()
