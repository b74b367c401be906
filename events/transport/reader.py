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

__all__ = ["WORKER_LOST", "Reader"]

log = structlog.get_logger(__name__)

WORKER_LOST = "WorkerLost"
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
    ) -> None:
        self._subscription = subscription
        self._group = subscription.group
        self._blocking = blocking
        self._options = options
        self._deliver = deliver
        self._stopping = asyncio.Event()
        self._group_exists = False
        self._is_drained = False
        self._next_claim = 0.0
        self._next_cleanup = 0.0
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
        if not self._is_drained:
            await self._take_over(timedelta(), here=True)
            self._is_drained = True
        if monotonic() >= self._next_claim:
            await self._take_over(self._options.lease)
            self._next_claim = monotonic() + self._options.claim_interval.total_seconds()
        if monotonic() >= self._next_cleanup:
            silent_for = self._options.forget_consumers_after
            await self._group.forget_consumers(silent_for)
            self._next_cleanup = monotonic() + silent_for.total_seconds() / 4
        if room := await self._subscription.window.room():
            await self._receive(await self._group.read(self._blocking, room, self._options.block))

    async def _take_over(self, idle: timedelta, *, here: bool = False) -> None:
        """Claim, page by page, entries that are pending for that long and not in flight here."""
        after = ""
        while room := await self._subscription.window.room():
            page = await self._group.pending(idle, room, after, here=here)
            if not page:
                return
            after = page[-1].id
            claimed = await self._group.claim(
                [row for row in page if row.id not in self._subscription.in_flight], idle
            )
            await self._handle(claimed)

    async def _handle(self, claimed: Claimed) -> None:
        self._subscription.statistics.reclaimed += len(claimed.entries)
        await self._discard(claimed.trimmed_ids)
        most = self._options.max_deliveries
        await self._receive([entry for entry in claimed.entries if entry.attempt <= most])
        for entry in claimed.entries:
            if entry.attempt > most:
                self._subscription.add(entry)
                await self._give_up(entry)

    async def _give_up(self, entry: InFlightEntry) -> None:
        attempts = entry.attempt - 1
        await self._subscription.reject(
            entry,
            WORKER_LOST,
            f"{attempts} attempts ended without an outcome: each time the worker died, or was "
            "silent for longer than its lease",
            attempts,
        )

    async def _receive(self, entries: Sequence[InFlightEntry]) -> None:
        for entry in entries:
            self._subscription.add(entry)
        for entry in entries:
            await self._deliver(entry)

    async def _discard(self, trimmed_ids: Sequence[str]) -> None:
        """Acknowledge pending entries that were trimmed from the stream: they can't be restored."""
        if not trimmed_ids:
            return
        log.error("entries.lost", stream=self._group.stream, entry_ids=list(trimmed_ids)[:20])
        async with self._group.redis.pipeline(transaction=False) as pipeline:
            self._group.queue_acknowledgements(pipeline, trimmed_ids)
            await pipeline.execute()
        self._subscription.statistics.lost += len(trimmed_ids)

    async def _recover(self, error: Exception) -> None:
        """Wait; then this consumer's pending entries come first: a lost reply may have had some."""
        self._is_drained = False
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
