"""Kafka-like consumer for Faust, built of readers, leases and settlements."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from faust.transport import base
from faust.types import TP
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.names import GROUPS, Topic
from events.positions import LogPosition, kept_position
from events.server.connection import connect
from events.streams.dead_letters import DeadLetter, instant_of, storable_signature, tellable
from events.transport.consumer_group import Group
from events.transport.faust_acks import AckLog, NoOffsets
from events.transport.in_flight import InFlightEntry, InFlightMessage, Window
from events.transport.reader import Reader
from events.transport.settler import Settler
from events.transport.subscription import Statistics, Subscription, keep_leases
from runtime.errors import ConfigurationError, MalformedEvent

__all__ = ["WORKER_LOST", "Consumer"]

log = structlog.get_logger(__name__)

WORKER_LOST = "WorkerLost"
_FINAL_SEND = timedelta(seconds=5)


class Consumer(base.Consumer):
    """Consumes streams through their groups; see the package for its guarantees."""

    consumer_stopped_errors = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.options = self.transport.options
        self.statistics = Statistics()
        self.name = self.options.consumer or (
            f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        )
        self.closing = False
        self._read_offset = NoOffsets()
        self._committed_offset = NoOffsets()
        self._acked = AckLog(self._on_faust_ack)
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
            self.add_future(keep_leases(self.subscriptions, self.options.lease)),
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
            reader = Reader(
                self.subscriptions[tp], self._blocking, self.options, self._deliver, self._give_up
            )
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
        return Subscription(group, window, self.statistics, self._settler.wake)

    async def _read(self, reader: Reader) -> None:
        await self.app.flow_control.acquire()
        await reader.run()

    async def _deliver(self, entry: InFlightEntry) -> None:
        if not self.closing:
            await self.callback(InFlightMessage(entry, self.app.consumer_generation_id))

    async def _give_up(self, entry: InFlightEntry) -> None:
        attempts = entry.attempt - 1
        await self.dead_letter(
            entry,
            WORKER_LOST,
            f"{attempts} attempts ended without an outcome: each time the worker died, or was "
            "silent for longer than its lease",
            attempts,
        )

    # What an agent does with an entry -------------------------------------------------------

    async def begin(self, entries: Iterable[InFlightEntry]) -> list[InFlightEntry]:
        """Mark entries as begun; return those that are still ours and unsettled."""
        ours = [entry for entry in entries if not (entry.lost or entry.settled)]
        redelivered = [entry for entry in ours if not entry.counted]
        for entry in ours:
            entry.begun = True
        if redelivered:
            # flush first: a finished neighbour must not count as begun if this entry kills us
            await self._send_rest()
        for tp in {entry.tp for entry in redelivered}:
            await self._count_attempt(tp, [entry for entry in redelivered if entry.tp == tp])
        return ours

    async def _count_attempt(self, tp: TP, entries: list[InFlightEntry]) -> None:
        try:
            await self.subscriptions[tp].group.count_attempt(entries)
        except (RedisError, OSError) as error:
            log.warning("attempt.not_counted", stream=tp.topic, error=str(error))

    def acknowledge(self, entry: InFlightEntry) -> None:
        """Acknowledge an entry whose effect has committed."""
        self.subscriptions[entry.tp].acknowledge(entry)

    def retry(self, entry: InFlightEntry, delay: timedelta, *, counted: bool) -> None:
        """Deliver this entry again after a delay."""
        self.subscriptions[entry.tp].retry(entry, delay, counted=counted)

    async def dead_letter(
        self, entry: InFlightEntry, error: str, detail: str, attempts: int
    ) -> None:
        """Move an entry to the dead letters; if that fails it is delivered again."""
        if entry.settled:
            return
        subscription = self.subscriptions[entry.tp]
        letter = self._letter(entry, error, detail, attempts)
        try:
            await self.transport.before_burial(letter)
            await subscription.group.dead_letter(entry.id, letter.to_fields())
        except Exception as failure:  # noqa: BLE001 - on any error the event must not be lost
            log.warning("dead_letter.failed", entry_id=entry.id, error=str(failure))
            subscription.retry(entry, self.options.retry_delay, counted=False)
            return
        subscription.dead_letter(entry)
        log.error(
            "event.dead",
            topic=entry.tp.topic,
            entry_id=entry.id,
            error=error,
            detail=detail,
            attempts=attempts,
        )

    def _letter(self, entry: InFlightEntry, error: str, detail: str, attempts: int) -> DeadLetter:
        return DeadLetter(
            event=entry.event,
            topic=entry.tp.topic,
            partition=entry.tp.partition,
            entry_id=entry.id,
            group=self.subscriptions[entry.tp].group.name,
            error=error,
            detail=tellable(detail),
            attempts=attempts,
            first_at=instant_of(int(entry.id.partition("-")[0])),
            last_at=datetime.now(UTC),
            position=_position_of(entry),
            signature=storable_signature(entry.fields),
        )

    def _on_faust_ack(self, tp: TP, offset: int) -> None:
        """Handle an acknowledgement by Faust itself, for agents without our wrapper.

        While the flow is suspended, Faust also acknowledges entries that it skipped, so these
        acknowledgements are ignored.
        """
        self._acked_index[tp].discard(offset)
        if not self.app.flow_control.is_active():
            return
        subscription = self.subscriptions[tp]
        for entry in subscription.in_flight.values():
            if entry.offset == offset:
                subscription.acknowledge(entry)
                return

    # Shutdown ---------------------------------------------------------------------------------

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
            subscription.give_back_all()
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
        _, late = await asyncio.wait(
            tasks, timeout=(self.options.block + _FINAL_SEND).total_seconds()
        )
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_rest(self) -> None:
        try:
            async with asyncio.timeout(_FINAL_SEND.total_seconds()):
                await self._settler.flush()
        except (RedisError, OSError) as error:
            log.warning("settling.failed", error=str(error))

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

    # The rest of the shape of a Kafka consumer --------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        """Wait for the end: readers deliver by themselves."""
        await asyncio.Event().wait()

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Acknowledge all finished entries now."""
        await self._send_rest()
        return True

    def assignment(self) -> set[TP]:
        """Return every partition that is read."""
        return set(self.subscriptions)

    def on_buffer_full(self, tp: TP) -> None:
        """Do nothing: the window bounds each topic."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Do nothing: the window bounds each topic."""

    async def perform_seek(self) -> None:
        """Do nothing: a group keeps its own log position."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Return no offsets: a group keeps its own log position."""
        return {}

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Do nothing: streams can't seek, a replay publishes again."""

    async def _seek(self, partition: TP, offset: int) -> None:
        """Do nothing: streams can't seek, a replay publishes again."""

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        return True

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        return {}

    def _to_message(self, tp: TP, record: InFlightEntry) -> InFlightMessage:
        return InFlightMessage(record, self.app.consumer_generation_id)

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    async def position(self, tp: TP) -> int | None:
        """Return None: a group has no single offset."""
        return None

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Return 0: only tables, which are not supported, need it."""
        return dict.fromkeys(partitions, 0)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Return 0: only tables, which are not supported, need it."""
        return dict.fromkeys(partitions, 0)

    def highwater(self, tp: TP) -> int:
        """Return 0: only tables, which are not supported, need it."""
        return 0

    def topic_partitions(self, topic: str) -> int | None:
        """Return the number of partitions, which is the same for every topic."""
        partitions: int = self.options.partitions
        return partitions

    def key_partition(
        self, topic: str, key: bytes | None, partition: int | None = None
    ) -> int | None:
        """Return the partition that the producer would choose."""
        chosen: int = self.app.producer.key_partition(topic, key or b"").partition
        return chosen if partition is None else partition

    async def create_topic(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a stream is created with its first entry or group."""


def _group_name(topic: str) -> str:
    if topic not in GROUPS:
        raise ConfigurationError(f"topic {topic} has no consumer group", "add it to GROUPS")
    return GROUPS[Topic(topic)]


def _position_of(entry: InFlightEntry) -> int | None:
    try:
        position = LogPosition.of_entry(Topic(entry.tp.topic).lane, entry.tp.partition, entry.id)
        return kept_position(entry.fields, position)
    except (ValueError, MalformedEvent):
        return None
