"""Consumer of streams for Faust: a reader per topic, and the settlement of what they read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

import structlog
from faust.types import TP
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.names import BRIDGE, GROUPS, Topic
from events.server.cluster import ClusterClient
from events.server.connection import LONGEST_BLOCK, connect
from events.server.read_waits import end_reads
from events.transport.consumer_group import Group, InFlightEntry, InFlightMessage
from events.transport.faust_consumer import FaustConsumer
from events.transport.reader import Reader, search_for_resting
from events.transport.subscription import (
    Settler,
    Statistics,
    Subscription,
    Window,
    renew_leases,
)
from runtime.errors import ConfigurationError
from runtime.intervals import until_tick

__all__ = ["Consumer"]

log = structlog.get_logger(__name__)

_FINAL_SEND = timedelta(seconds=5)
_END_READS_EVERY = timedelta(milliseconds=100)


class Consumer(FaustConsumer):
    """Consumes streams through their groups; see the package for its guarantees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.statistics = Statistics()
        self.name = self.options.consumer or (
            f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        )
        self.closing = False
        self._names = self.options.names
        self._redis: Redis = connect(self.transport.redis_url)
        self._blocking: Redis = connect(self.transport.redis_url, blocking=True, endable=True)
        self.subscriptions: dict[TP, Subscription] = {}
        self._settler = Settler(self._redis, self.subscriptions, self.options.ack_linger)
        self._windows: dict[str, Window] = {}
        self._readers: dict[Reader, asyncio.Future[None]] = {}
        self._reader_of: dict[str, Reader] = {}
        self._tasks: list[asyncio.Future[None]] = []

    async def on_start(self) -> None:
        """Start the tasks beside the readers; an error in one ends the worker."""
        self._tasks = [
            self.add_future(self._settler.run()),
            self.add_future(renew_leases(self.subscriptions, self.options.lease)),
            self.add_future(self._follow_raise()),
            self.add_future(self._search_for_resting()),
        ]

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read every partition of these topics."""
        wanted = {TP(topic, n) for topic in topics for n in range(self._names.partitions)}
        new = wanted - self.subscriptions.keys()
        first = not self.subscriptions
        for tp in sorted(new):
            self.subscriptions[tp] = self._subscription(tp)
        if first:
            self._announce(new)
        elif new:
            await self.app.topics.on_partitions_assigned(self.assignment())
        for _, tps in groupby(sorted(new), lambda tp: tp.topic):
            self._begin_reading([self.subscriptions[tp] for tp in tps])
        if new and not first:
            await self._end_reads_once()  # the next ones are of the new streams, too

    def _begin_reading(self, subscriptions: Sequence[Subscription]) -> None:
        """Read further streams of a topic; on a cluster, no command may read several of them."""
        if isinstance(self._redis, ClusterClient):
            for subscription in subscriptions:
                self._add_reader([subscription])
            return
        topic = subscriptions[0].group.tp.topic
        if topic in self._reader_of:
            self._reader_of[topic].add(subscriptions)
        else:
            self._reader_of[topic] = self._add_reader(subscriptions)

    def _add_reader(self, subscriptions: Sequence[Subscription]) -> Reader:
        reader = Reader(subscriptions, self._blocking, self.options, self._deliver)
        self._readers[reader] = self.add_future(self._read(reader))
        return reader

    async def _follow_raise(self) -> None:
        """Read the partitions by which the number of the deployment was raised."""
        while not self.closing:
            await asyncio.sleep(until_tick(self.options.claim_interval).total_seconds())
            topics = {tp.topic for tp in self.subscriptions}
            if len(self.subscriptions) < len(topics) * self._names.partitions:
                await self.subscribe(topics)

    async def _search_for_resting(self) -> None:
        """Search the streams of readers that rest, at the times when they would."""
        while not self.closing:
            await asyncio.sleep(until_tick(self.options.claim_interval).total_seconds())
            if await search_for_resting(self._readers):
                await self._end_reads_once()

    def _announce(self, assigned: set[TP]) -> None:
        """Start Faust's flow; not awaited, because it waits for ``subscribe`` to return."""
        self.app.on_rebalance_start()
        self.app.consumer_generation_id = 1
        self.add_future(self.on_partitions_assigned(assigned, 1))

    def _subscription(self, tp: TP) -> Subscription:
        names = self._names
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
        ending = asyncio.create_task(self._end_reads())
        _, late = await asyncio.wait(tasks, timeout=(LONGEST_BLOCK + _FINAL_SEND).total_seconds())
        for task in (ending, *late):
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)

    async def _end_reads(self) -> None:
        """End the waiting reads, repeatedly: a reader may be about to begin one."""
        while True:
            await self._end_reads_once()
            await asyncio.sleep(_END_READS_EVERY.total_seconds())

    async def _end_reads_once(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await end_reads(self._blocking)

    async def _send_rest(self) -> None:
        try:
            async with asyncio.timeout(_FINAL_SEND.total_seconds()):
                await self._settler.flush()
        except (RedisError, OSError) as error:
            log.warning("acknowledgement.failed", error=str(error))

    async def on_shutdown(self) -> None:
        """Leave the groups in which nothing is pending, and close the connections."""
        for reader in self._readers:
            try:
                await reader.leave()
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
