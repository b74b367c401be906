"""Subscriptions: the in-flight entries of each stream, their leases, and their settlement."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

import structlog
from faust.types import TP
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError

from events.streams.dead_letters import DeadLetter
from events.transport.consumer_group import Group, InFlightEntry, letter_of
from runtime import metrics, traces
from runtime.intervals import until_tick
from runtime.traces import Span

__all__ = ["OnDead", "Settler", "Statistics", "Subscription", "Window", "renew_leases"]

log = structlog.get_logger(__name__)

_MOST_AT_ONCE = 128
"""Most entries of one read: their size is known only after they have arrived."""

_FADING = 0.98
_PAUSE = timedelta(milliseconds=200)
_PRECISION = timedelta(milliseconds=10)
"""Redis counts the idle time of an entry in milliseconds."""


OnDead = Callable[[DeadLetter], Awaitable[None]]


@dataclass
class Statistics:
    """Counts since the process started.

    ``acknowledged`` entries are finished; ``sent`` counts those of which Redis knows it.
    """

    delivered: int = 0
    acknowledged: int = 0
    sent: int = 0
    retried: int = 0
    reclaimed: int = 0
    dead: int = 0
    lost: int = 0
    leases_lost: int = 0
    groups_recreated: int = 0
    read_errors: int = 0


class Window:
    """Bounds the number and bytes of one topic's in-flight entries, over all its partitions.

    A read of Redis can't be limited in bytes, so the number of entries that fit is estimated from
    the largest of the recent ones.
    """

    def __init__(self, limit: int, limit_bytes: int = 32 * 2**20) -> None:
        self.limit = limit
        self.limit_bytes = limit_bytes
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._large = 0.0
        self._closed = False
        self._changed = asyncio.Event()

    async def room(self) -> int:
        """Wait until half of the window is free; return how many entries fit, 0 once it is closed.

        Refilling by halves makes reads few and large.
        """
        while not self._half_free() and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        if self._closed:
            return 0
        fit = int((self.limit_bytes - self.in_flight_bytes) / max(1.0, self._large))
        return min(self.limit - self.in_flight, _MOST_AT_ONCE, max(1, fit))

    def enter(self, size_bytes: int = 0) -> None:
        """Add one entry."""
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._large = max(size_bytes, _FADING * self._large)

    def leave(self, size_bytes: int = 0) -> None:
        """Remove one entry."""
        self.free_bytes(size_bytes)
        self.free_slot()

    def free_bytes(self, size_bytes: int) -> None:
        """Subtract the bytes of an entry that is no longer in memory."""
        self.in_flight_bytes -= size_bytes
        self._changed.set()

    def free_slot(self, after: timedelta = timedelta()) -> None:
        """Remove one entry from the count, at once or later.

        An entry that waits for a retry stays counted: while a database is down, a worker then holds
        one window of failed events, not the whole backlog.
        """
        if after:
            asyncio.get_running_loop().call_later(after.total_seconds(), self.free_slot)
            return
        self.in_flight -= 1
        self._changed.set()

    def _half_free(self) -> bool:
        has_room = self.limit - self.in_flight >= max(1, self.limit // 2)
        return has_room and 2 * self.in_flight_bytes <= self.limit_bytes

    def close(self) -> None:
        """Admit no more entries, and end every wait for room."""
        self._closed = True
        self._changed.set()


@dataclass
class Subscription:
    """State of one stream.

    ``in_flight`` has every entry whose lease is renewed. It includes finished entries until Redis
    has their acknowledgement, so that the reader of this process can't take them over before.
    ``retry_delay`` is the delay of an entry that could not be dead-lettered. ``on_dead`` is
    awaited with each dead letter before it is stored. ``wake`` is called after an entry is settled,
    and with True if there is something to send to Redis. ``_due_at`` is the latest time (monotonic)
    at which an entry that was handed back becomes overdue.
    """

    group: Group
    window: Window
    statistics: Statistics
    wake: Callable[[bool], None]
    on_dead: OnDead | None
    retry_delay: timedelta
    in_flight: dict[str, InFlightEntry] = field(default_factory=dict)
    _finished: list[InFlightEntry] = field(default_factory=list)
    _aged: dict[tuple[timedelta, int], list[InFlightEntry]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _due_at: float | None = None

    def add(self, entry: InFlightEntry) -> None:
        """Add an entry that was read or claimed."""
        self.in_flight[entry.id] = entry
        self.window.enter(entry.size_bytes)
        self.statistics.delivered += 1

    def acknowledge(self, entry: InFlightEntry, *, sent: bool = False) -> None:
        """Mark an entry as finished; it is acknowledged within the linger time, unless it was."""
        if entry.span.is_recording and not sent:
            entry.acknowledging = _acknowledging(entry)
        if self._settle(entry, "acknowledged", is_sent=sent):
            self.window.leave(entry.size_bytes)
            self.statistics.acknowledged += 1
            if sent:
                self.statistics.sent += 1
                _count("acknowledged", [entry])
                self.in_flight.pop(entry.id, None)
            else:
                self._finished.append(entry)

    async def retry(self, entry: InFlightEntry, delay: timedelta, *, counted: bool) -> None:
        """Hand an entry back, to be delivered again after a delay, to any consumer.

        An attempt that is not ``counted`` does not count towards dead-lettering.
        """
        self._hand_back(entry, delay, counted=counted)

    async def reject(self, entry: InFlightEntry, error: str, detail: str, attempts: int) -> None:
        """Move an entry to the dead letters; if that fails, it is delivered again."""
        if entry.settled:
            return
        letter = letter_of(entry, self.group.name, error, detail, attempts)
        try:
            if self.on_dead is not None:
                await self.on_dead(letter)
            await self.group.dead_letter(entry.id, letter.to_fields())
        except Exception as failure:  # noqa: BLE001 - on any error the event must not be lost
            log.warning("dead_letter.failed", entry_id=entry.id, error=str(failure))
            self._hand_back(entry, self.retry_delay, counted=False)
            return
        entry.span.fail(error)
        if self._settle(entry, "dead_lettered"):
            self.window.leave(entry.size_bytes)
            self.statistics.dead += 1
            _count("dead_lettered", [entry])
        self.in_flight.pop(entry.id, None)
        log.error(
            "event.dead_lettered",
            topic=entry.tp.topic,
            entry_id=entry.id,
            error=error,
            detail=detail,
            attempts=attempts,
        )

    def give_back(self, entry: InFlightEntry) -> None:
        """Hand an unfinished entry back, to be taken over at once; the attempt is not counted."""
        self._hand_back(entry, timedelta(), counted=False)

    @property
    def awaits_returns(self) -> bool:
        """Return whether entries that were handed back will be overdue."""
        return self._due_at is not None

    def takes_due_returns(self, now: float) -> bool:
        """Return whether entries that were handed back may be overdue; forget it once all are."""
        due_at = self._due_at
        if due_at is not None and now > due_at:
            self._due_at = None
        return due_at is not None

    def working(self) -> bool:
        """Return whether any begun work is unsettled."""
        return any(entry.begun and not entry.settled for entry in self.in_flight.values())

    def drop_taken_over(self, owned_ids: set[str]) -> list[str]:
        """Mark and drop entries that another consumer has taken over; return their ids."""
        entries = [
            entry
            for entry in self.in_flight.values()
            if entry.id not in owned_ids and not entry.settled
        ]
        for entry in entries:
            entry.taken_over = True
            del self.in_flight[entry.id]
            if self._settle(entry, "lease_lost"):
                self.window.leave(entry.size_bytes)
        self.statistics.leases_lost += len(entries)
        _count("lease_lost", entries)
        return [entry.id for entry in entries]

    @contextmanager
    def queue(self, pipeline: Pipeline) -> Iterator[None]:
        """Queue the pending settlements; they count as sent if the body succeeds."""
        finished, self._finished = self._finished, []
        aged, self._aged = self._aged, defaultdict(list)
        self.group.queue_acknowledgements(pipeline, [entry.id for entry in finished])
        for (idle, deliveries), entries in aged.items():
            ids = [entry.id for entry in entries]
            self.group.queue_claim(pipeline, ids, idle, deliveries)
        try:
            yield
        except BaseException:
            self._finished[:0] = finished
            for key, entries in aged.items():
                self._aged[key][:0] = entries
            raise
        self._note_due(idle for idle, _ in aged)
        self.statistics.sent += len(finished)
        _count("acknowledged", finished)
        for entry in [*finished, *(entry for entries in aged.values() for entry in entries)]:
            entry.acknowledging.end()
            self.in_flight.pop(entry.id, None)

    def _note_due(self, idle_times: Iterable[timedelta]) -> None:
        due = [self.group.lease - idle for idle in idle_times]
        if due:
            due_at = monotonic() + (max(due) + _PRECISION).total_seconds()
            self._due_at = max(due_at, self._due_at or due_at)

    def note_renewed(self, entries: Iterable[InFlightEntry]) -> None:
        """Note entries whose leases were renewed: one that was also handed back is due later.

        Of the two commands, either may be the last that Redis executed.
        """
        if any(entry.handed_back for entry in entries):
            self._note_due([timedelta()])

    def count_reclaimed(self, entries: Sequence[InFlightEntry]) -> None:
        """Count entries that were claimed from another consumer."""
        self.statistics.reclaimed += len(entries)
        _count("reclaimed", entries)

    def _settle(self, entry: InFlightEntry, settlement: str, *, is_sent: bool = False) -> bool:
        """Settle an entry; return False if it was settled already."""
        if entry.settled:
            return False
        entry.settled = True
        if entry.span.is_recording:
            entry.span.set({"headrace.settlement": settlement})
            entry.span.end()
        self.wake(not is_sent)
        return True

    def _hand_back(self, entry: InFlightEntry, delay: timedelta, *, counted: bool) -> None:
        """Make an entry overdue after a delay.

        Redis can't set a negative idle time, so the part of a delay beyond the lease is waited here
        first.
        """
        if not self._settle(entry, "retried"):
            return
        self.statistics.retried += 1
        _count("retried", [entry])
        self.window.free_slot(after=delay)
        here = max(delay - self.group.lease, timedelta())
        idle = self.group.lease - min(delay, self.group.lease)
        deliveries = entry.attempt if counted else entry.attempt - 1
        if here:
            loop = asyncio.get_running_loop()
            loop.call_later(here.total_seconds(), self._age, entry, idle, deliveries)
        else:
            self._age(entry, idle, deliveries)

    def _age(self, entry: InFlightEntry, idle: timedelta, deliveries: int) -> None:
        self.window.free_bytes(entry.size_bytes)
        if not entry.taken_over:
            entry.handed_back = True
            self._aged[idle, deliveries].append(entry)
            self.wake(True)


def _count(kind: str, entries: Sequence[InFlightEntry]) -> None:
    """Count entries of one topic."""
    if entries:
        metrics.DELIVERIES.inc(len(entries), topic=entries[0].tp.topic, kind=kind)


def _acknowledging(entry: InFlightEntry) -> Span:
    """Start the span of an acknowledgement; it ends when Redis has the acknowledgement."""
    topic = entry.tp.topic
    attributes = traces.messaging(topic, "ack")
    return traces.start(f"ack {topic}", "client", parent=entry.span, attributes=attributes)


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

    def wake(self, has_news: bool = True) -> None:
        """Notify that an entry was settled; ``has_news``: there may be something to send."""
        self._settled.set()
        if has_news:
            self._changed.set()

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


async def renew_leases(subscriptions: Mapping[TP, Subscription], lease: timedelta) -> None:
    """Renew the leases for ever, every third of their duration.

    Entries that another consumer has taken over (because this process was stopped, or its loop
    stalled) are marked: an entry is dropped if work on it has not begun, and its outcome is
    ignored if it has. The fence in the store covers the rest.
    """
    while True:
        await asyncio.sleep(until_tick(lease / 3).total_seconds())
        for subscription in list(subscriptions.values()):
            await _renew(subscription)


async def _renew(subscription: Subscription) -> None:
    in_flight = dict(subscription.in_flight)
    if not in_flight:
        return
    try:
        renewed = await subscription.group.renew(list(in_flight))
    except (RedisError, OSError) as error:
        log.warning("lease.renewal_failed", stream=subscription.group.stream, error=str(error))
        subscription.note_renewed(in_flight.values())  # only the reply may have failed
        return
    subscription.note_renewed(in_flight[entry_id] for entry_id in renewed)
    newer = subscription.in_flight.keys() - in_flight.keys()
    if taken_over := subscription.drop_taken_over(renewed | newer):
        stream = subscription.group.stream
        log.warning("lease.expired", stream=stream, entries=len(taken_over))
