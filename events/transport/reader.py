"""Read loop of the streams of one topic, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.server.connection import LONGEST_BLOCK
from events.server.read_waits import are_endable, longest_wait_s
from events.transport.consumer_group import (
    Claimed,
    Group,
    InFlightEntry,
    consumers_of,
    is_group_missing,
    others,
    read_groups,
    sign,
)
from events.transport.options import Options
from events.transport.subscription import Subscription
from runtime.intervals import Backoff, until_tick
from runtime.lifespan import wait_or_stop

__all__ = ["WORKER_LOST", "Reader", "Roll", "search_for_resting"]

log = structlog.get_logger(__name__)

WORKER_LOST = "WorkerLost"
_IDLE_AFTER = timedelta(seconds=5)
_MARGIN = timedelta(milliseconds=5)
"""Time by which an idle read outlasts the time of the next claim, so that one read is enough."""
_LEASES_OF_REST = 2
_AFTER_SEARCH = timedelta(milliseconds=50)
"""Time for the search at the tick that ends a rest, so that the reader does not repeat it."""
_SEARCH_ALL_EVERY = timedelta(minutes=5)
"""Entries that a person or program has read by another way become overdue unnoticed."""
_SIGN_AFTER = timedelta(seconds=4)
"""Age of a signature that any version accepts, beside half of a lease."""

_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=3))

Deliver = Callable[[InFlightEntry], Awaitable[None]]


class Reader:
    """Read loop of the streams of one topic, on one connection of its own.

    A read in flight is never cancelled: its entries would be pending for a consumer that never
    received them. ``stop`` ends the loop between two reads.

    A single stream is searched for overdue entries at every claim interval, or once per lease while
    it has no pending ones. Of several streams, only those are that may have some (see ``Roll``), so
    that the cost of idle streams does not grow with their number, and an idle reader looks no more
    often than a consumer can fall silent.

    An idle reader rests: its read waits longer, if it can be ended. ``search_for_resting`` searches
    its streams in the meantime, together with those of other readers.
    """

    def __init__(
        self,
        subscriptions: Sequence[Subscription],
        blocking: Redis,
        options: Options,
        deliver: Deliver,
    ) -> None:
        self._subscriptions = list(subscriptions)
        self._window = subscriptions[0].window
        self._statistics = subscriptions[0].statistics
        self._blocking = blocking
        self._options = options
        self._deliver = deliver
        self._stopping = asyncio.Event()
        self._undrained = list(subscriptions)
        self._without_group = list(subscriptions)
        """All of these are undrained, too."""
        self._roll = Roll(options)
        self._next_claim = 0.0
        self._suspects: list[Subscription] | None = None
        self._is_quiet = False
        self._received_at = monotonic()
        self._next_cleanup = 0.0
        self._failures = 0
        self.is_resting = False

    @property
    def needs_search(self) -> bool:
        """Return whether it rests, and its next search is due."""
        tolerance = self._options.claim_interval / 2  # tasks that wait for a tick wake in any order
        return self.is_resting and self._next_claim - monotonic() < tolerance.total_seconds()

    @property
    def lone_group(self) -> Group | None:
        """Group of the only stream; None for several streams."""
        first, *others = self._subscriptions
        return None if others else first.group

    async def look_at_roll(self) -> bool:
        """Search several streams while they are read; return whether the read must end.

        Raises:
            RedisError: Redis can't be reached.
        """
        suspects = await self._roll.suspects(self._subscriptions)
        earlier = self._suspects or []
        self._suspects = [*earlier, *(entry for entry in suspects if entry not in earlier)] or None
        return self.note_search(self._suspects is not None)

    def note_search(self, has_suspects: bool) -> bool:
        """Plan the next search after one for a reader that rests; return whether the read must end.

        The reader searches before its next read if streams may have overdue entries, or were added
        during the read.
        """
        if not self.is_resting:
            return False  # what it has read since then decides
        must_end = has_suspects or bool(self._without_group)
        self._plan_search(must_end)
        if must_end:
            self._next_claim = 0.0
        return must_end

    def note_failure(self) -> bool:
        """Claim from all streams after a failed search; return whether the read must end."""
        if self.is_resting:
            self._undrained = list(self._subscriptions)
        return self.note_search(True)

    def add(self, subscriptions: Iterable[Subscription]) -> None:
        """Read further streams of the topic too, from the next read on."""
        for subscription in subscriptions:
            self._subscriptions.append(subscription)
            self._without_group.append(subscription)
            self._undrained.append(subscription)
        self._next_claim = 0.0  # of several streams, none is read before the roll is signed
        self._is_quiet = False

    def stop(self) -> None:
        """End after the read in flight."""
        self._stopping.set()
        self._window.close()

    async def run(self) -> None:
        """Read until stopped; after an error of Redis, wait and read again."""
        while not self._stopping.is_set():
            try:
                await self._step()
                self._failures = 0
            except (RedisError, OSError) as error:
                await self._recover(error)

    async def leave(self) -> None:
        """Remove this consumer from the groups, and at the end from the one that is its roll.

        It stays on the roll while another group has pending entries of it.

        Raises:
            RedisError: Redis can't be reached.
        """
        roll, *others = self._subscriptions
        left = [await subscription.group.leave() for subscription in others]
        if all(left):
            await roll.group.leave()

    async def _step(self) -> None:
        while self._undrained:
            await self._create_groups()
            subscription = self._undrained[0]
            await self._take_over(subscription, timedelta(), here=True)
            self._undrained.remove(subscription)
        if monotonic() >= self._next_claim:
            await self._search()
        if monotonic() >= self._next_cleanup:
            await self._forget_consumers()
        room = await self._window.room()
        # a due claim comes first (see ``Roll``), and so do the groups of new streams
        if room and monotonic() < self._next_claim and not self._without_group:
            await self._read(room)

    async def _create_groups(self) -> None:
        """Create missing groups, also of the streams that are added in the meantime."""
        while self._without_group:
            subscription = self._without_group[0]
            await subscription.group.create()
            self._without_group.remove(subscription)

    async def _search(self) -> None:
        """Take over overdue entries, and plan the next search."""
        suspects, self._suspects = self._suspects, None
        if suspects is None:
            nothing_pending = await self._has_nothing_pending()
            suspects = [] if nothing_pending else await self._roll.suspects(self._subscriptions)
        for subscription in suspects:
            await self._take_over(subscription, self._options.lease)
        self._plan_search(bool(suspects))

    def _plan_search(self, has_suspects: bool) -> None:
        """Set the time of the next search.

        If a single stream has no pending entries, none is overdue before the end of a lease from
        now; the roll gives such a time for several. Entries that this consumer reads in the
        meantime bring the next search forward, because it may hand them back.
        """
        self._is_quiet = not has_suspects
        pause, lease = self._until_claim(), self._options.lease
        if self._is_quiet and self.lone_group is not None:
            pause = max(min(until_tick(lease), lease), pause)
        elif self._is_quiet and self._is_idle() and not self._may_hand_back():
            pause = max(self._roll.pause, pause)
        self._next_claim = monotonic() + pause.total_seconds()

    def _may_hand_back(self) -> bool:
        """Return whether entries are in flight, or were handed back and are not overdue yet."""
        return any(entry.in_flight or entry.awaits_returns for entry in self._subscriptions)

    async def _has_nothing_pending(self) -> bool:
        """Return whether the only stream has no pending entries; False for several streams."""
        subscription, *others = self._subscriptions
        if others or subscription.in_flight:
            return False
        return not await subscription.group.has_pending()

    def _until_claim(self) -> timedelta:
        return until_tick(self._options.claim_interval)

    def _search_soon(self) -> None:
        self._next_claim = min(self._next_claim, monotonic() + self._until_claim().total_seconds())

    async def _forget_consumers(self) -> None:
        silent_for = self._options.forget_consumers_after
        for subscription in list(self._subscriptions):
            await subscription.group.forget_consumers(silent_for)
        self._next_cleanup = monotonic() + silent_for.total_seconds() / 4

    async def _read(self, room: int) -> None:
        """Read at most ``room`` entries, or one of each stream if these are more."""
        if len(self._subscriptions) == 1:
            [subscription] = self._subscriptions
            with self._resting():
                entries = await subscription.group.read(self._blocking, room, self._block())
            await self._receive(subscription, entries)
            return
        share = max(1, room // len(self._subscriptions))
        with self._resting():
            batches = await self._read_all(self._subscriptions, share, self._block())
        full = [subscription for subscription, batch in batches if len(batch) == share]
        rest = (room - sum(len(batch) for _, batch in batches)) // max(1, len(full))
        if full and rest > 0:  # few streams have many entries
            batches += await self._read_all(full, rest, None)
        for subscription, batch in batches:
            await self._receive(subscription, batch)

    async def _read_all(
        self, subscriptions: Sequence[Subscription], count: int, block: timedelta | None
    ) -> list[tuple[Subscription, list[InFlightEntry]]]:
        groups: dict[Group, Subscription] = {entry.group: entry for entry in subscriptions}
        read = await read_groups(self._blocking, list(groups), count, block)
        return [(groups[group], entries) for group, entries in read.items()]

    def _block(self) -> timedelta:
        """Longest wait of the next read; a stop waits for it if it can't end reads."""
        if self.is_resting:
            longest = timedelta(seconds=longest_wait_s(self._blocking))
            return min(longest, until_tick(_LEASES_OF_REST * self._options.lease) + _AFTER_SEARCH)
        if not self._is_idle():
            return self._options.block
        until_claim = timedelta(seconds=self._next_claim - monotonic()) + _MARGIN
        longest = min(LONGEST_BLOCK, self._options.lease / 3)
        return max(self._options.block, min(longest, until_claim))

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Rest for the time of a read, if nothing was read and no search found anything."""
        self.is_resting = self._is_idle() and self._is_quiet and are_endable(self._blocking)
        try:
            yield
        finally:
            self.is_resting = False

    def _is_idle(self) -> bool:
        return monotonic() - self._received_at >= _IDLE_AFTER.total_seconds()

    async def _take_over(
        self, subscription: Subscription, idle: timedelta, *, here: bool = False
    ) -> None:
        """Claim, page by page, entries that are pending for that long and not in flight here."""
        after = ""
        while room := await self._window.room():
            page = await subscription.group.pending(idle, room, after, here=here)
            if not page:
                return
            after = page[-1].id
            claimed = await subscription.group.claim(
                [row for row in page if row.id not in subscription.in_flight], idle
            )
            await self._handle(subscription, claimed)

    async def _handle(self, subscription: Subscription, claimed: Claimed) -> None:
        subscription.count_reclaimed(claimed.entries)
        await self._discard(subscription, claimed.trimmed_ids)
        most = self._options.max_deliveries
        await self._receive(
            subscription, [entry for entry in claimed.entries if entry.attempt <= most]
        )
        for entry in claimed.entries:
            if entry.attempt > most:
                subscription.add(entry)
                await self._give_up(subscription, entry)

    async def _give_up(self, subscription: Subscription, entry: InFlightEntry) -> None:
        attempts = entry.attempt - 1
        await subscription.reject(
            entry,
            WORKER_LOST,
            f"{attempts} attempts ended without an outcome: each time the worker died, or was "
            "silent for longer than its lease",
            attempts,
        )

    async def _receive(self, subscription: Subscription, entries: Sequence[InFlightEntry]) -> None:
        if entries:
            self._received_at = monotonic()
            self._is_quiet = False
            self._search_soon()
        for entry in entries:
            subscription.add(entry)
        for entry in entries:
            await self._deliver(entry)

    async def _discard(self, subscription: Subscription, trimmed_ids: Sequence[str]) -> None:
        """Acknowledge pending entries that were trimmed from the stream: they can't be restored."""
        if not trimmed_ids:
            return
        group = subscription.group
        log.error("entries.lost", stream=group.stream, entry_ids=list(trimmed_ids)[:20])
        async with group.redis.pipeline(transaction=False) as pipeline:
            group.queue_acknowledgements(pipeline, trimmed_ids)
            await pipeline.execute()
        self._statistics.lost += len(trimmed_ids)

    async def _recover(self, error: Exception) -> None:
        """Wait; then this consumer's pending entries come first: a lost reply may have had some."""
        self._undrained = list(self._subscriptions)
        self._next_claim = 0.0
        self._roll.begin_again()
        stream = self._subscriptions[0].group.stream
        if is_group_missing(error):
            self._statistics.groups_recreated += not self._without_group
            self._without_group = list(self._subscriptions)
            log.error("group.lost", stream=stream, error=str(error))
        else:
            self._statistics.read_errors += 1
            log.warning("stream.read_failed", stream=stream, error=str(error))
        await wait_or_stop(self._stopping, _BACKOFF.delay(self._failures))
        self._failures += 1


async def search_for_resting(readers: Iterable[Reader]) -> bool:
    """Search the streams of the readers that rest; return whether their reads must end.

    They must if entries may become overdue, and after a failure.
    """
    due = [reader for reader in readers if reader.needs_search]
    lone = {reader.lone_group: reader for reader in due}
    rolls = [reader for reader in due if reader.lone_group is None]
    groups = [group for group in lone if group is not None]
    try:
        pending = await consumers_of(groups) if groups else {}
        found = [lone[group].note_search(bool(names)) for group, names in pending.items()]
        # one after the other, since each at the same time would open a connection
        found += [await reader.look_at_roll() for reader in rolls]
    except (RedisError, OSError) as error:
        log.warning("stream.search_failed", error=str(error))
        found = [reader.note_failure() for reader in due]
    return any(found)


class Roll:
    """Roll of the consumers of a topic: it shows which streams may have overdue entries.

    To search every stream at every interval would cost more commands with every partition. An entry
    becomes overdue for one of two reasons: its consumer fell silent, or handed it back. A consumer
    remembers what it handed back, unless it stops. To notice the silent ones, all consumers of a
    topic sign on one roll, the group of its first stream, before their signature is a lease old.
    Redis has the time of each. They look at it when a signature is so old that entries of its
    consumer may have been overdue for an interval.

    A consumer signs before it reads if it is time to, and leaves the roll only after it has nothing
    pending. So each consumer with a pending entry is on the roll, and it is silent no later than
    the entry is overdue.
    """

    def __init__(self, options: Options) -> None:
        lease, interval = options.lease.total_seconds(), options.claim_interval.total_seconds()
        block = options.block.total_seconds()
        # for consumers of earlier versions, another one is silent after half of a lease
        longest = max(lease / 2 - block, _SIGN_AFTER.total_seconds())
        self._sign_every_s = max(min(lease - interval - block, longest), interval)
        self._silent_ms = 1000 * max(
            lease - interval / 4, self._sign_every_s + interval / 2 + block
        )
        self._overdue_s = lease + interval
        self._tolerance_s = interval / 2
        self._sign_at = self._look_at = 0.0
        self._cleared: dict[str, float] = {}
        """Times of the last signatures (monotonic) of silent consumers without pending entries."""
        self._next_search_of_all = 0.0

    @property
    def pause(self) -> timedelta:
        """Time until it has to sign or to look."""
        return timedelta(seconds=min(self._sign_at, self._look_at) - monotonic())

    async def suspects(self, subscriptions: Sequence[Subscription]) -> list[Subscription]:
        """Return the streams that may have overdue entries; sign the roll if it is time to.

        Raises:
            RedisError: Redis can't be reached.
        """
        subscriptions = list(subscriptions)  # others may be added during a search
        if len(subscriptions) == 1:
            return subscriptions
        now = monotonic()
        if now >= self._next_search_of_all:
            await self._sign(subscriptions[0].group)
            self._next_search_of_all = now + _SEARCH_ALL_EVERY.total_seconds()
            return subscriptions
        searched: list[Subscription] = []
        if silent := await self._silent(subscriptions[0].group):
            pending = await consumers_of([entry.group for entry in subscriptions])
            self._clear(silent, pending)
            searched = [entry for entry in subscriptions if pending[entry.group]]
        # what is taken here is forgotten, so no command may fail after it
        returned = [entry for entry in subscriptions if entry.takes_due_returns(monotonic())]
        return searched + [entry for entry in returned if entry not in searched]

    async def _silent(self, group: Group) -> Mapping[str, float]:
        """Return when silent consumers that may have pending entries have signed, by name."""
        if monotonic() >= self._sign_at - self._tolerance_s:
            await self._sign(group)
        if monotonic() < self._look_at - self._tolerance_s:
            return {}
        rows = await others(group)
        now = monotonic()
        silent = {name: now - idle / 1000 for name, idle in rows.items() if idle >= self._silent_ms}
        # one that has signed since may have got entries before it fell silent again
        self._cleared = {
            name: signed_at
            for name, signed_at in self._cleared.items()
            if name in silent and abs(silent[name] - signed_at) < self._tolerance_s
        }
        suspected = {name: at for name, at in silent.items() if name not in self._cleared}
        longest_ms = max((idle for name, idle in rows.items() if name not in silent), default=0)
        until_overdue_s = 0.0 if suspected else self._overdue_s - longest_ms / 1000
        self._look_at = monotonic() + until_overdue_s
        return suspected

    def begin_again(self) -> None:
        """Sign and look next time: the roll may be lost."""
        self._sign_at = self._look_at = 0.0

    async def _sign(self, group: Group) -> None:
        await sign(group)
        self._sign_at = monotonic() + self._sign_every_s

    def _clear(self, silent: Mapping[str, float], pending: Mapping[Group, set[str]]) -> None:
        """Note the silent consumers without pending entries; they are noticed if they sign."""
        holders = set[str]().union(*pending.values())
        self._cleared |= {name: at for name, at in silent.items() if name not in holders}
