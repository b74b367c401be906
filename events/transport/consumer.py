"""Consumer of streams for Faust, and the reader of each stream."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

import structlog
from faust.types import TP
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.names import BRIDGE, GROUPS, Topic
from events.server.connection import LONGEST_BLOCK, connect
from events.transport.consumer_group import (
    Claimed,
    Group,
    InFlightEntry,
    InFlightMessage,
    is_group_missing,
)
from events.transport.faust_consumer import FaustConsumer
from events.transport.options import Options
from events.transport.subscription import (
    Settler,
    Statistics,
    Subscription,
    Window,
    renew_leases,
)
from runtime.errors import ConfigurationError
from runtime.intervals import Backoff, until_tick
from runtime.lifespan import wait_or_stop

__all__ = ["WORKER_LOST", "Consumer", "Reader"]

log = structlog.get_logger(__name__)

_FINAL_SEND = timedelta(seconds=5)


class Consumer(FaustConsumer):
    """Consumes streams through their groups; see the package for its guarantees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.statistics = Statistics()
        self.name = self.options.consumer or (
            f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        )
        self.closing = False
        self._redis: Redis = connect(self.transport.redis_url)
        self._blocking: Redis = connect(self.transport.redis_url, blocking=True)
        self.subscriptions: dict[TP, Subscription] = {}
        self._settler = Settler(self._redis, self.subscriptions, self.options.ack_linger)
        self._windows: dict[str, Window] = {}
        self._readers: dict[Reader, asyncio.Future[None]] = {}
        self._tasks: list[asyncio.Future[None]] = []

    async def on_start(self) -> None:
        """Start to send settlements and to renew leases; an error in either ends the worker."""
        self._tasks = [
            self.add_future(self._settler.run()),
            self.add_future(renew_leases(self.subscriptions, self.options.lease)),
        ]

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read every partition of these topics."""
        wanted = {TP(topic, n) for topic in topics for n in range(self.options.partitions)}
        new = wanted - self.subscriptions.keys()
        first = not self.subscriptions
        for tp in sorted(new):
            self.subscriptions[tp] = self._subscription(tp)
        if first:
            self._announce(new)
        elif new:
            await self.app.topics.on_partitions_assigned(self.assignment())
        for tp in sorted(new):
            reader = Reader(self.subscriptions[tp], self._blocking, self.options, self._deliver)
            self._readers[reader] = self.add_future(self._read(reader))

    def _announce(self, assigned: set[TP]) -> None:
        """Start Faust's flow; not awaited, because it waits for ``subscribe`` to return."""
        self.app.on_rebalance_start()
        self.app.consumer_generation_id = 1
        self.add_future(self.on_partitions_assigned(assigned, 1))

    def _subscription(self, tp: TP) -> Subscription:
        names = self.options.names
        group = Group(
            redis=self._redis,
            tp=tp,
            stream=names.stream(tp.topic, tp.partition),
            dead_stream=names.dead(tp.topic, tp.partition),
            name=_group_name(tp.topic),
            consumer=self.name,
            lease=self.options.lease,
        )
        limit = self.transport.prefetch.get(tp.topic, self.options.max_inflight)
        window = self._windows.setdefault(tp.topic, Window(limit))
        return Subscription(
            group,
            window,
            self.statistics,
            self._settler.wake,
            self.transport.on_dead,
            self.options.retry_delay,
        )

    async def _read(self, reader: Reader) -> None:
        await self.app.flow_control.acquire()
        await reader.run()

    async def _deliver(self, entry: InFlightEntry) -> None:
        if not self.closing:
            await self.callback(InFlightMessage(entry, self.app.consumer_generation_id))

    async def begin(self, entries: Iterable[InFlightEntry]) -> list[InFlightEntry]:
        """Mark entries as begun; return those that are unsettled and not taken over."""
        begun = [entry for entry in entries if not (entry.taken_over or entry.settled)]
        redelivered = [entry for entry in begun if not entry.counted]
        for entry in begun:
            entry.begun = True
        if redelivered:
            # flush first: finished neighbours must not count as begun if an entry ends the process
            await self._send_rest()
        for tp in {entry.tp for entry in redelivered}:
            await self._count_attempt(tp, [entry for entry in redelivered if entry.tp == tp])
        return begun

    async def _count_attempt(self, tp: TP, entries: list[InFlightEntry]) -> None:
        try:
            await self.subscriptions[tp].group.count_attempt(entries)
        except (RedisError, OSError) as error:
            log.warning("attempt.not_counted", stream=tp.topic, error=str(error))

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Acknowledge all finished entries now."""
        await self._send_rest()
        return True

    def assignment(self) -> set[TP]:
        """Return every partition that is read."""
        return set(self.subscriptions)

    def acknowledge_offset(self, tp: TP, offset: int) -> None:
        """Acknowledge the entry with this offset, if it is in flight."""
        subscription = self.subscriptions[tp]
        for entry in subscription.in_flight.values():
            if entry.offset == offset:
                subscription.acknowledge(entry)
                return

    async def wait_empty(self) -> None:
        """Finish begun work within ``shutdown_timeout``; Faust calls this before agents stop."""
        self.closing = True
        for reader in self._readers:
            reader.stop()
        try:
            async with asyncio.timeout(self.options.shutdown_timeout.total_seconds()):
                await self._settler.worked_off()
        except TimeoutError:
            log.warning("shutdown.work_unfinished")
        await self._send_rest()

    async def on_stop(self) -> None:
        """Give back the remaining entries after the agents have stopped."""
        self.closing = True
        await self._end_readers()
        for subscription in self.subscriptions.values():
            for entry in subscription.in_flight.values():
                subscription.give_back(entry)
        await self._send_rest()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_readers(self) -> None:
        """Wait for the reads in flight; one is cut off only if the server does not answer."""
        for reader in self._readers:
            reader.stop()
        tasks = list(self._readers.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=(LONGEST_BLOCK + _FINAL_SEND).total_seconds())
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_rest(self) -> None:
        try:
            async with asyncio.timeout(_FINAL_SEND.total_seconds()):
                await self._settler.flush()
        except (RedisError, OSError) as error:
            log.warning("acknowledgement.failed", error=str(error))

    async def on_shutdown(self) -> None:
        """Leave the groups in which nothing is pending, and close the connections."""
        for subscription in self.subscriptions.values():
            try:
                await subscription.group.leave()
            except (RedisError, OSError) as error:
                log.warning("group.leave_failed", error=str(error))
                break
        await self._redis.aclose()
        await self._blocking.aclose()


def _group_name(topic: str) -> str:
    if topic == Topic.OUTCOME:
        return BRIDGE
    if topic not in GROUPS:
        raise ConfigurationError(f"topic {topic} has no consumer group", "add it to GROUPS")
    return GROUPS[Topic(topic)]


WORKER_LOST = "WorkerLost"
_IDLE_AFTER = timedelta(seconds=5)
_MARGIN = timedelta(milliseconds=5)
"""Time by which an idle read outlasts the time of the next claim, so that one read is enough."""
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
        self._received_at = monotonic()
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
            self._next_claim = (
                monotonic() + until_tick(self._options.claim_interval).total_seconds()
            )
        if monotonic() >= self._next_cleanup:
            silent_for = self._options.forget_consumers_after
            await self._group.forget_consumers(silent_for)
            self._next_cleanup = monotonic() + silent_for.total_seconds() / 4
        if room := await self._subscription.window.room():
            entries = await self._group.read(self._blocking, room, self._block())
            await self._receive(entries)

    def _block(self) -> timedelta:
        """Longest wait of the next read. An idle stream is read every claim interval."""
        now = monotonic()
        if now - self._received_at < _IDLE_AFTER.total_seconds():
            return self._options.block
        until_claim = timedelta(seconds=self._next_claim - now) + _MARGIN
        longest = min(LONGEST_BLOCK, self._options.lease / 3, until_claim)
        return max(self._options.block, longest)

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
        self._subscription.count_reclaimed(claimed.entries)
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
        if entries:
            self._received_at = monotonic()
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
