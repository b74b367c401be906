"""Reader of one stream: new entries, and pending entries of dead consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from time import monotonic

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.transport.consumer_group import Claimed, is_group_missing
from events.transport.in_flight import InFlightEntry
from events.transport.options import Options
from events.transport.subscription import Subscription
from runtime.intervals import Backoff
from runtime.lifespan import wait_or_stop

__all__ = ["Reader"]

log = structlog.get_logger(__name__)

_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=3))

Deliver = Callable[[InFlightEntry], Awaitable[None]]


class Reader:
    """Read loop of one stream, on its own connection.

    A read in flight is never cancelled: its entries would be pending for a consumer that never
    received them. ``stop`` ends the loop between two reads.
    """

    def __init__(
        self,
        subscription: Subscription,
        blocking: Redis,
        options: Options,
        deliver: Deliver,
        give_up: Deliver,
    ) -> None:
        self._subscription = subscription
        self._group = subscription.group
        self._blocking = blocking
        self._options = options
        self._deliver = deliver
        self._give_up = give_up
        self._stopping = asyncio.Event()
        self._group_exists = False
        self._own_drained = False
        self._next_claim = 0.0
        self._next_tidying = 0.0
        self._failures = 0

    def stop(self) -> None:
        """End after the read in flight."""
        self._stopping.set()
        self._subscription.window.close()

    async def run(self) -> None:
        """Read until stopped; after an error of Redis, wait and read again."""
        while not self._stopping.is_set():
            try:
                await self._step()
                self._failures = 0
            except (RedisError, OSError) as error:
                await self._recover(error)

    async def _step(self) -> None:
        if not self._group_exists:
            await self._group.create()
            self._group_exists = True
        if not self._own_drained:
            await self._take_over(timedelta(), own=True)
            self._own_drained = True
        if monotonic() >= self._next_claim:
            await self._take_over(self._options.lease)
            self._next_claim = monotonic() + self._options.claim_interval.total_seconds()
        if monotonic() >= self._next_tidying:
            silent_for = self._options.forget_consumers_after
            await self._group.forget_consumers(silent_for)
            self._next_tidying = monotonic() + silent_for.total_seconds() / 4
        if room := await self._subscription.window.room():
            await self._receive(await self._group.read(self._blocking, room, self._options.block))

    async def _take_over(self, idle: timedelta, *, own: bool = False) -> None:
        """Claim, page by page, entries that are pending for that long and that we don't hold."""
        after = ""
        while room := await self._subscription.window.room():
            page = await self._group.pending(idle, room, after, own=own)
            if not page:
                return
            after = page[-1].id
            claimed = await self._group.claim(
                [row for row in page if row.id not in self._subscription.in_flight], idle
            )
            await self._handle(claimed)

    async def _handle(self, claimed: Claimed) -> None:
        self._subscription.statistics.reclaimed += len(claimed.entries)
        await self._forget(claimed.lost_ids)
        most = self._options.max_deliveries
        await self._receive([entry for entry in claimed.entries if entry.attempt <= most])
        for entry in claimed.entries:
            if entry.attempt > most:
                self._subscription.hold(entry)
                await self._give_up(entry)

    async def _receive(self, entries: Sequence[InFlightEntry]) -> None:
        for entry in entries:
            self._subscription.hold(entry)
        for entry in entries:
            await self._deliver(entry)

    async def _forget(self, lost_ids: Sequence[str]) -> None:
        """Acknowledge pending entries that were trimmed from the stream: they can't be restored."""
        if not lost_ids:
            return
        log.error("entries.lost", stream=self._group.stream, entry_ids=list(lost_ids)[:20])
        async with self._group.redis.pipeline(transaction=False) as pipeline:
            self._group.queue_acknowledgements(pipeline, lost_ids)
            await pipeline.execute()
        self._subscription.statistics.lost += len(lost_ids)

    async def _recover(self, error: Exception) -> None:
        """Read our own pending entries first after an error: a lost reply may have held entries."""
        self._own_drained = False
        statistics = self._subscription.statistics
        if is_group_missing(error):
            statistics.groups_recreated += self._group_exists
            self._group_exists = False
            log.error("group.lost", stream=self._group.stream, error=str(error))
        else:
            statistics.read_errors += 1
            log.warning("stream.read_failed", stream=self._group.stream, error=str(error))
        await wait_or_stop(self._stopping, _BACKOFF.delay(self._failures))
        self._failures += 1
