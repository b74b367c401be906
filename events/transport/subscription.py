"""One stream that this process reads: what it holds of it, and what it still has to tell Redis."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from redis.asyncio.client import Pipeline

from events.transport.group import Group
from events.transport.held import HeldEntry, Window

__all__ = ["Statistics", "Subscription"]


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

    ``held`` has every entry whose lease we keep alive: also finished ones until Redis knows that
    they are finished, so that our own reader can't take them over meanwhile.
    """

    group: Group
    window: Window
    statistics: Statistics
    wake: Callable[[], None]
    held: dict[str, HeldEntry] = field(default_factory=dict)
    _finished: list[HeldEntry] = field(default_factory=list)
    _aged: dict[tuple[timedelta, int], list[HeldEntry]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def hold(self, entry: HeldEntry) -> None:
        """Take an entry in hand."""
        self.held[entry.id] = entry
        self.window.enter(entry.size_bytes)
        self.statistics.delivered += 1

    def acknowledge(self, entry: HeldEntry) -> None:
        """Mark an entry as finished; Redis is told within the linger time."""
        if self._settle(entry):
            self.window.leave(entry.size_bytes)
            self.statistics.acknowledged += 1
            self._finished.append(entry)

    def retry(self, entry: HeldEntry, delay: timedelta, *, counted: bool) -> None:
        """Hand an entry back, to be delivered again after a delay, by whatever consumer.

        An attempt that isn't ``counted`` doesn't bring the entry nearer to the dead letters.
        Redis can't age an entry below zero, so a delay beyond the lease is waited for here first.
        """
        if not self._settle(entry):
            return
        self.statistics.retried += 1
        self.window.free_place(after=delay)
        here = max(delay - self.group.lease, timedelta())
        idle = self.group.lease - min(delay, self.group.lease)
        deliveries = entry.attempt if counted else entry.attempt - 1
        if here:
            loop = asyncio.get_running_loop()
            loop.call_later(here.total_seconds(), self._age, entry, idle, deliveries)
        else:
            self._age(entry, idle, deliveries)

    def bury(self, entry: HeldEntry) -> None:
        """Forget an entry that lies in the dead letters now."""
        if self._settle(entry):
            self.window.leave(entry.size_bytes)
            self.statistics.dead += 1
        self.held.pop(entry.id, None)

    def give_back_all(self) -> None:
        """At shutdown: whatever isn't finished may be taken over at once, at no attempt's cost."""
        for entry in self.held.values():
            if not entry.settled:
                self.retry(entry, timedelta(), counted=False)

    def working(self) -> bool:
        """Whether work has begun that isn't settled."""
        return any(entry.begun and not entry.settled for entry in self.held.values())

    def mark_lost(self, still_ours: set[str]) -> list[str]:
        """After a renewal: entries that another consumer has now."""
        lost = [
            entry
            for entry in self.held.values()
            if entry.id not in still_ours and not entry.settled
        ]
        for entry in lost:
            entry.lost = True
            del self.held[entry.id]
            if self._settle(entry):
                self.window.leave(entry.size_bytes)
        self.statistics.leases_lost += len(lost)
        return [entry.id for entry in lost]

    @contextmanager
    def queue(self, pipeline: Pipeline) -> Iterator[None]:
        """Queue what Redis has to be told; it counts as told when the body succeeds."""
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
            self.held.pop(entry.id, None)

    def _settle(self, entry: HeldEntry) -> bool:
        settled, entry.settled = entry.settled, True
        self.wake()
        return not settled

    def _age(self, entry: HeldEntry, idle: timedelta, deliveries: int) -> None:
        self.window.free_bytes(entry.size_bytes)
        if not entry.lost:
            self._aged[idle, deliveries].append(entry)
            self.wake()
