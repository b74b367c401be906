"""Subscription to one stream: the entries held, and the settlements not yet sent to Redis."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from faust.types import TP
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError

from events.transport.consumer_group import Group
from events.transport.in_flight import InFlightEntry, Window

__all__ = ["Statistics", "Subscription", "keep_leases"]


@dataclass
class Statistics:
    """Counts since the process started."""

    delivered: int = 0
    acknowledged: int = 0
    retried: int = 0
    reclaimed: int = 0
    dead: int = 0
    lost: int = 0
    leases_lost: int = 0
    groups_recreated: int = 0
    read_errors: int = 0


@dataclass
class Subscription:
    """State of one stream.

    ``in_flight`` has every entry whose lease is renewed. It includes finished entries until Redis
    has their acknowledgement, so that our own reader can't take them over before.
    """

    group: Group
    window: Window
    statistics: Statistics
    wake: Callable[[], None]
    in_flight: dict[str, InFlightEntry] = field(default_factory=dict)
    _finished: list[InFlightEntry] = field(default_factory=list)
    _aged: dict[tuple[timedelta, int], list[InFlightEntry]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def hold(self, entry: InFlightEntry) -> None:
        """Add an entry to those held."""
        self.in_flight[entry.id] = entry
        self.window.enter(entry.size_bytes)
        self.statistics.delivered += 1

    def acknowledge(self, entry: InFlightEntry) -> None:
        """Mark an entry as finished; it is acknowledged within the linger time."""
        if self._settle(entry):
            self.window.leave(entry.size_bytes)
            self.statistics.acknowledged += 1
            self._finished.append(entry)

    def retry(self, entry: InFlightEntry, delay: timedelta, *, counted: bool) -> None:
        """Hand an entry back, to be delivered again after a delay, to any consumer.

        An attempt that is not ``counted`` does not count towards dead-lettering. Redis can't set a
        negative idle time, so the part of a delay beyond the lease is waited here first.
        """
        if not self._settle(entry):
            return
        self.statistics.retried += 1
        self.window.free_slot(after=delay)
        here = max(delay - self.group.lease, timedelta())
        idle = self.group.lease - min(delay, self.group.lease)
        deliveries = entry.attempt if counted else entry.attempt - 1
        if here:
            loop = asyncio.get_running_loop()
            loop.call_later(here.total_seconds(), self._age, entry, idle, deliveries)
        else:
            self._age(entry, idle, deliveries)

    def dead_letter(self, entry: InFlightEntry) -> None:
        """Remove an entry that has been dead-lettered."""
        if self._settle(entry):
            self.window.leave(entry.size_bytes)
            self.statistics.dead += 1
        self.in_flight.pop(entry.id, None)

    def give_back_all(self) -> None:
        """Hand back all unfinished entries at shutdown, to be taken over at once, uncounted."""
        for entry in self.in_flight.values():
            if not entry.settled:
                self.retry(entry, timedelta(), counted=False)

    def working(self) -> bool:
        """Return whether any begun work is unsettled."""
        return any(entry.begun and not entry.settled for entry in self.in_flight.values())

    def mark_lost(self, still_ours: set[str]) -> list[str]:
        """Mark and drop entries that another consumer has taken over; return their ids."""
        lost = [
            entry
            for entry in self.in_flight.values()
            if entry.id not in still_ours and not entry.settled
        ]
        for entry in lost:
            entry.lost = True
            del self.in_flight[entry.id]
            if self._settle(entry):
                self.window.leave(entry.size_bytes)
        self.statistics.leases_lost += len(lost)
        return [entry.id for entry in lost]

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
        for entry in [*finished, *(entry for entries in aged.values() for entry in entries)]:
            self.in_flight.pop(entry.id, None)

    def _settle(self, entry: InFlightEntry) -> bool:
        settled, entry.settled = entry.settled, True
        self.wake()
        return not settled

    def _age(self, entry: InFlightEntry, idle: timedelta, deliveries: int) -> None:
        self.window.free_bytes(entry.size_bytes)
        if not entry.lost:
            self._aged[idle, deliveries].append(entry)
            self.wake()


log = structlog.get_logger(__name__)


async def keep_leases(subscriptions: Mapping[TP, Subscription], lease: timedelta) -> None:
    """Renew the leases for ever, every third of their duration.

    Entries that another consumer has taken over (because this process was stopped, or its loop
    stalled) are marked lost: an entry is dropped if work on it has not begun, and its outcome is
    ignored if it has. The fence in the store covers the rest.
    """
    while True:
        await asyncio.sleep(lease.total_seconds() / 3)
        for subscription in list(subscriptions.values()):
            await _renew(subscription)


async def _renew(subscription: Subscription) -> None:
    in_flight = list(subscription.in_flight)
    if not in_flight:
        return
    try:
        ours = await subscription.group.renew(in_flight)
    except (RedisError, OSError) as error:
        log.warning("lease.renewal_failed", stream=subscription.group.stream, error=str(error))
        return
    newer = subscription.in_flight.keys() - set(in_flight)
    if lost := subscription.mark_lost(ours | newer):
        log.warning("lease.expired", stream=subscription.group.stream, entries=len(lost))
