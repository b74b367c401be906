"""Parts of the transport that need no server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from math import inf
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from faust.types import TP
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.names import Lane, LogPosition, Topic
from events.transport import (
    InFlightEntry,
    InFlightMessage,
    Options,
    Statistics,
    kept_position,
    reader,
)
from events.transport.app import App
from events.transport.consumer_group import Group
from events.transport.faust_consumer import AckLog, NoOffsets
from events.transport.subscription import Subscription, Window, _renew
from runtime import intervals
from runtime.errors import ConfigurationError, MalformedEvent
from tests.support.waiting import eventually

TP0 = TP(Topic.CHANGED_LIVE.value, 0)
OWN = LogPosition.of_entry(Lane.LIVE, 0, "1000-1")
LEASE = timedelta(seconds=6)


def entry(entry_id: str = "1000-1", **more: Any) -> InFlightEntry:
    return InFlightEntry(TP0, entry_id, {b"event": b"{}"}, **more)


def subscription(wake: Callable[[bool], None] = lambda _: None) -> Subscription:
    group = Mock(Group, lease=LEASE)
    return Subscription(
        group,
        Window(4),
        Statistics(),
        wake=wake,
        on_dead=None,
        retry_delay=timedelta(seconds=1),
    )


def test_an_entry_that_is_settled_twice_wakes_the_sender_once() -> None:
    """A question is acknowledged by its reply, and again when its handler returns."""
    woken: list[bool] = []
    stream = subscription(woken.append)
    sent, late = entry("1000-1"), entry("1000-2")
    stream.add(sent)
    stream.add(late)
    stream.acknowledge(sent, sent=True)
    stream.acknowledge(sent)
    assert woken == [False]
    stream.acknowledge(late)
    stream.acknowledge(late)
    assert woken == [False, True]
    assert (stream.statistics.acknowledged, stream.statistics.sent) == (2, 1)


def test_options_come_from_the_query() -> None:
    """Options are read from a broker URL's query; durations are in seconds."""
    options = Options.from_query({"prefix": "kb", "partitions": "3", "lease": "1.5"})
    assert (options.prefix, options.partitions) == ("kb", 3)
    assert options.lease == timedelta(seconds=1.5)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"leese": "3"}, "unknown option 'leese'"),
        ({"partitions": "many"}, "partitions"),
        ({"lease": "0.1"}, "three times block"),
        ({"block": "30"}, "block"),
        ({"max_inflight": "0"}, "must be at least 1"),
    ],
)
def test_wrong_options_name_the_cure(query: dict[str, str], says: str) -> None:
    """A wrong option in the broker URL is refused with its name."""
    with pytest.raises(ConfigurationError, match=says):
        Options.from_query(query)


def test_entry_ids_become_offsets_in_the_same_order() -> None:
    """Offsets keep the order of the stream ids."""
    ids = ["999-1048575", "1000-0", "1000-1", "1001-0"]
    offsets = [entry(entry_id).offset for entry_id in ids]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == len(offsets)


def test_fields_beside_the_event_are_headers() -> None:
    """Further fields of an entry become headers of the message."""
    message = InFlightMessage(
        InFlightEntry(TP0, "1000-1", {b"event": b"{}", b"position": b"7"}), generation_id=1
    )
    assert (message.value, message.headers) == (b"{}", [("position", b"7")])
    assert message.timestamp == 1.0


def test_a_kept_position_wins_over_the_own_one() -> None:
    """The position of a redriven event wins over the position of its new entry."""
    assert kept_position({}, OWN) == OWN.position
    assert kept_position({b"position": b"7"}, OWN) == 7
    assert kept_position({b"position": str(OWN.position).encode()}, OWN) == OWN.position


@pytest.mark.parametrize("text", [b"", b"-1", b"1e3", b"9" * 40, str(OWN.position + 1).encode()])
def test_an_impossible_position_is_malformed(text: bytes) -> None:
    """A position that is not a number, or newer than its entry, is malformed."""
    with pytest.raises(MalformedEvent):
        kept_position({b"position": text}, OWN)


async def test_a_window_refills_by_halves() -> None:
    """A window is refilled once half of it is free."""
    window = Window(4)
    for _ in range(4):
        window.enter()
    room = asyncio.create_task(window.room())
    window.leave()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not room.done()
    window.leave()
    assert await room == 2


async def test_a_window_bounds_bytes_too() -> None:
    """A window limits bytes too: large entries are read a few at a time, or not at all."""
    window = Window(1000, limit_bytes=1000)
    window.enter(100)
    assert await window.room() == 9
    window.enter(500)
    room = asyncio.create_task(window.room())
    await asyncio.sleep(0)
    assert not room.done()
    window.free_slot(after=timedelta(hours=1))
    await asyncio.sleep(0)
    assert not room.done()
    window.free_bytes(500)
    assert await room == 1
    window.leave(100)
    for _ in range(500):
        window.enter(1)
        window.leave(1)
    assert await window.room() > 100


async def test_an_entry_larger_than_the_window_passes_alone() -> None:
    """An entry larger than the window can be read, and the window then works as before."""
    window = Window(1000, limit_bytes=1000)
    window.enter(5000)
    window.leave(5000)
    assert await window.room() == 1


async def test_a_closed_window_has_no_room() -> None:
    """Closing a window ends the waits for room."""
    window = Window(1)
    window.enter()
    room = asyncio.create_task(window.room())
    await asyncio.sleep(0)
    window.close()
    assert await room == 0


async def test_a_retried_entry_keeps_its_place_until_it_is_due() -> None:
    """An entry that waits for its retry stays in the window until it is due."""
    held = subscription()
    failed = entry()
    held.add(failed)
    await held.retry(failed, timedelta(milliseconds=20), counted=True)
    assert held.window.in_flight == 1
    await eventually(lambda: held.window.in_flight == 0, "the place is free")


async def test_an_entry_that_is_handed_back_during_a_renewal_is_looked_for() -> None:
    """The renewal may come last, so that the entry is overdue a lease later than it was to be."""
    held = subscription()
    failed = entry()
    held.add(failed)

    async def renew(entry_ids: Sequence[str]) -> set[str]:
        await held.retry(failed, timedelta(), counted=True)
        with held.queue(Mock()):
            pass
        assert held.takes_due_returns(time.monotonic() + 1), "its own delay has passed"
        assert not held.awaits_returns
        return set(entry_ids)

    cast("Any", held.group).renew = renew
    await _renew(held)
    assert held.takes_due_returns(time.monotonic())
    assert held.awaits_returns, "it is looked for until a lease has passed"
    assert held.takes_due_returns(time.monotonic() + 2 * LEASE.total_seconds())
    assert not held.awaits_returns


@pytest.mark.parametrize(("delay", "bytes_left"), [(LEASE, 0), (2 * LEASE, 7)])
async def test_an_entry_that_waits_here_still_counts_by_its_bytes(
    delay: timedelta, bytes_left: int
) -> None:
    """An entry that waits longer than a lease is held in memory, so its bytes stay counted."""
    held = subscription()
    failed = entry()
    assert failed.size_bytes == 7
    held.add(failed)
    await held.retry(failed, delay, counted=False)
    assert held.window.in_flight_bytes == bytes_left


async def test_an_entry_is_settled_once() -> None:
    """Only the first settlement of an entry counts."""
    held = subscription()
    one = entry()
    held.add(one)
    held.acknowledge(one)
    held.acknowledge(one)
    await held.retry(one, timedelta(seconds=1), counted=True)
    assert (held.statistics.acknowledged, held.statistics.retried) == (1, 0)
    assert held.window.in_flight == 0


def test_an_acknowledgement_counts_again_when_it_is_sent() -> None:
    """Who looks at the log after a change of the counts finds the log as the last one left it."""
    held = subscription()
    one = entry()
    held.add(one)
    held.acknowledge(one)
    finished = replace(held.statistics)
    with pytest.raises(ZeroDivisionError), held.queue(Mock()):
        raise ZeroDivisionError
    assert held.statistics == finished
    with held.queue(Mock()):
        assert held.statistics == finished
    assert held.statistics == replace(finished, sent=1)


def test_a_lost_entry_is_not_acknowledged() -> None:
    """A lost entry is not acknowledged, because its new owner does that."""
    held = subscription()
    one = entry()
    held.add(one)
    assert held.drop_taken_over(set()) == [one.id]
    held.acknowledge(one)
    assert held.statistics.acknowledged == 0
    assert held.window.in_flight == 0


def test_fausts_acknowledgements_pass_through_and_leave_nothing() -> None:
    """An acknowledgement by Faust is passed on and leaves no offset behind."""
    seen: list[tuple[TP, int]] = []
    log = AckLog(lambda tp, offset: seen.append((tp, offset)))
    log[TP0].append(7)
    log[TP0].append(3)
    assert seen == [(TP0, 7), (TP0, 3)]
    assert list(log[TP0]) == []


def test_no_offset_is_ever_remembered() -> None:
    """No offset is remembered; otherwise Faust would drop reclaimed entries, which are older."""
    offsets = NoOffsets()
    offsets[TP0] = 5
    offsets.update({TP0: 5})
    assert offsets[TP0] is None


def test_tables_are_refused() -> None:
    """Faust tables are refused, because they need Kafka's log."""
    with pytest.raises(ConfigurationError, match="Postgres"):
        App("test", broker="redis://localhost").Table("counts")


class IdleGroup:
    """Group without new entries, which records the wait of each read and the times of searches."""

    name, stream, lease = "indexer", "stream", LEASE

    def __init__(self, *, is_pending: bool) -> None:
        self.now = 100.0
        self.blocks: list[float] = []
        self.searched_at: list[float] = []
        self.is_pending = is_pending
        self.while_reading: Callable[[], Awaitable[Any]] | None = None

    async def create(self) -> None:
        """Do nothing: it exists."""

    async def forget_consumers(self, _silent_for: timedelta) -> None:
        """Do nothing: there are none."""

    async def has_pending(self) -> bool:
        self.searched_at.append(self.now)
        return self.is_pending

    async def pending(self, *_: Any, here: bool = False) -> list[Any]:
        return []

    async def read(self, _blocking: Any, _count: int, block: timedelta) -> list[InFlightEntry]:
        self.blocks.append(block.total_seconds())
        for _ in range(2):
            self.now += block.total_seconds() / 2
            if self.while_reading is not None:
                await self.while_reading()
        return []


def idle_reader(
    group: IdleGroup, monkeypatch: pytest.MonkeyPatch, *, is_endable: bool = True
) -> reader.Reader:
    """Make a reader with the clock of the group."""
    for module in (reader, intervals):
        monkeypatch.setattr(module, "monotonic", lambda: group.now)
    monkeypatch.setattr(reader, "are_endable", lambda _: is_endable)
    monkeypatch.setattr(reader, "longest_wait_s", lambda _: 14.0)
    idle = subscription()
    idle.group = cast("Group", group)
    return reader.Reader([idle], cast("Redis", None), Options(), cast("Any", None))


@pytest.mark.parametrize(
    ("is_endable", "is_pending", "longest_read", "longest_pause"),
    [(True, False, 12.0, 13.55), (True, True, 2.0, 2.25), (False, False, 2.0, 6.25)],
)
async def test_an_idle_stream_is_read_and_searched_rarely(
    is_endable: bool,
    is_pending: bool,
    longest_read: float,
    longest_pause: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While other consumers have pending entries, it is searched at each claim interval."""
    group = IdleGroup(is_pending=is_pending)
    reading = idle_reader(group, monkeypatch, is_endable=is_endable)
    while group.now < 150:
        await reading._step()
    assert set(group.blocks[:20]) == {0.25}  # for five seconds after the last entry
    assert max(group.blocks) == pytest.approx(longest_read, abs=0.01)
    pauses = [later - earlier for earlier, later in pairwise(group.searched_at)]
    assert longest_pause / 2 < max(pauses) <= longest_pause


@pytest.mark.parametrize("fails", [False, True])
async def test_resting_readers_are_searched_together(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that rests searches itself only if entries are pending, or a search failed."""
    group = IdleGroup(is_pending=False)
    reading = idle_reader(group, monkeypatch)
    must_end: list[bool] = []

    async def consumers_of(groups: list[IdleGroup]) -> dict[IdleGroup, set[str]]:
        if fails and group.is_pending:
            raise RedisError
        return {group: {"another"} if group.is_pending else set() for group in groups}

    async def search() -> None:
        must_end.append(await reader.search_for_resting([reading]))

    monkeypatch.setattr(reader, "consumers_of", consumers_of)
    group.while_reading = search
    while group.now < 150:
        await reading._step()
    assert max(group.searched_at) < 110
    assert not any(must_end)
    group.is_pending = True
    await reading._step()
    assert must_end[-1]
    ended_at = group.now
    await reading._step()
    assert group.searched_at[-1] == ended_at


def reader_of_two(found: list[list[Subscription]]) -> reader.Reader:
    """Make a reader of two streams, which finds these suspects at each look at the roll."""
    streams = [subscription(), subscription()]
    reading = reader.Reader(streams, cast("Redis", None), Options(), cast("Any", None))
    reading._roll = Mock(suspects=AsyncMock(side_effect=found), pause=LEASE)
    reading._without_group.clear()
    reading._undrained.clear()
    return reading


@pytest.mark.parametrize("failing", ["sign", "others", "consumers_of"])
async def test_a_failed_look_at_the_roll_forgets_no_return(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream of an entry that was handed back is searched once Redis answers again."""
    monkeypatch.setattr(reader, "monotonic", lambda: time.monotonic() + 60)
    monkeypatch.setattr(reader, "sign", AsyncMock())
    monkeypatch.setattr(reader, "others", AsyncMock(return_value={}))
    streams, roll = [subscription(), subscription()], reader.Roll(Options())
    monkeypatch.setattr(roll, "_sign_every_s", 0.0)
    monkeypatch.setattr(roll, "_overdue_s", 0.0)
    assert await roll.suspects(streams) == streams  # the first search is of all
    one = entry()
    streams[1].add(one)
    streams[1].give_back(one)
    with streams[1].queue(Mock()):
        pass
    with monkeypatch.context() as broken:
        broken.setattr(reader, "others", AsyncMock(return_value={"silent": 60_000}))
        broken.setattr(reader, failing, AsyncMock(side_effect=RedisError))
        with pytest.raises(RedisError):
            await roll.suspects(streams)
    assert await roll.suspects(streams) == streams[1:]
    assert await roll.suspects(streams) == []


async def test_a_later_look_at_the_roll_forgets_no_suspect() -> None:
    """A reader that did not rest any more searches what an earlier look found."""
    first, second = subscription(), subscription()
    reading = reader_of_two([[first], [second, first], []])
    assert not await reading.look_at_roll()
    assert not await reading.look_at_roll()
    reading.is_resting = True
    assert await reading.look_at_roll()
    assert reading._suspects == [first, second]


async def test_a_failed_search_has_all_streams_claimed_again() -> None:
    """A reader that rests claims its own entries after a failure, as after a failed read."""
    reading = reader_of_two([])
    reading._roll = Mock(suspects=AsyncMock(side_effect=RedisError))
    reading.is_resting = True
    assert await reader.search_for_resting([reading])
    assert reading._undrained == reading._subscriptions


async def test_a_read_must_end_until_added_streams_are_read() -> None:
    """An end that was missed is repeated at the next search, though no entries are overdue."""
    reading = reader_of_two([[], []])
    reading.is_resting = True
    reading.add([subscription()])
    for _ in range(2):
        assert reading.needs_search
        assert await reader.search_for_resting([reading])


@pytest.mark.parametrize("during", ["create", "pending"])
async def test_streams_that_are_added_at_the_start_are_created_and_drained(during: str) -> None:
    """Each stream has a group before its pending entries are claimed, also if it is added then."""
    streams = [subscription() for _ in range(3)]
    reading = reader.Reader(streams[:2], cast("Redis", None), Options(), cast("Any", None))
    done: list[tuple[str, Group]] = []

    def command(name: str, group: Group) -> Callable[..., Awaitable[list[Any]]]:
        async def run(*_: Any, **__: Any) -> list[Any]:
            if name == during and len(reading._subscriptions) == 2:
                reading.add(streams[2:])
            done.append((name, group))
            return []

        return run

    for each in streams:
        group: Any = each.group
        group.create, group.pending = command("create", group), command("pending", group)
    reading._roll = Mock(suspects=AsyncMock(side_effect=[[]]), pause=LEASE)
    reading._read = AsyncMock()  # type: ignore[method-assign]
    await reading._step()
    assert len(done) == 6
    for each in streams:
        assert done.index(("create", each.group)) < done.index(("pending", each.group))


async def test_a_consumer_that_signs_and_dies_between_two_looks_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had nothing pending when it was silent before; what it has read since is found."""
    streams, roll = [subscription(), subscription()], reader.Roll(Options())
    now, signed_at = 1000.0, 900.0
    pending: dict[Group, set[str]] = {entry.group: set() for entry in streams}
    monkeypatch.setattr(reader, "monotonic", lambda: now)
    monkeypatch.setattr(reader, "sign", AsyncMock())
    monkeypatch.setattr(reader, "consumers_of", AsyncMock(side_effect=lambda _: pending))
    idle = AsyncMock(side_effect=lambda _: {"another": int((now - signed_at) * 1000)})
    monkeypatch.setattr(reader, "others", idle)
    assert await roll.suspects(streams) == streams  # the first search is of all
    now += 10
    assert await roll.suspects(streams) == []
    now, signed_at = 1200.0, 1020.0  # the reader waited for room, and its idle time is longer
    pending[streams[1].group] = {"another"}
    assert await roll.suspects(streams) == streams[1:]


class IdleRoll:
    """The first stream's group with one other consumer, and what was sent to it, on a clock."""

    def __init__(self, signs_every: float) -> None:
        self.now = 100.0
        self.signs_every = signs_every
        self.died_at = inf
        self.commands: list[str] = []
        self.signed_at: list[float] = []

    def _idle(self) -> dict[str, int]:
        last = min(self.now, self.died_at) // self.signs_every * self.signs_every
        return {"another": int((self.now - last) * 1000)}

    async def sign(self, _: Group) -> None:
        self.commands.append("XREADGROUP")
        self.signed_at.append(self.now)

    async def others(self, _: Group) -> dict[str, int]:
        self.commands.append("XINFO")
        return self._idle()

    async def consumers_of(self, groups: list[Group]) -> dict[Group, set[str]]:
        self.commands += ["XPENDING" for _ in groups]
        return {group: {"another"} if self.now > self.died_at else set() for group in groups}


async def test_idle_streams_are_searched_no_more_often_than_a_consumer_can_fall_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead consumer is found within a lease and an interval, with few signatures and looks."""
    roll = IdleRoll(signs_every=4.0)
    for module in (reader, intervals):
        monkeypatch.setattr(module, "monotonic", lambda: roll.now)
    for name in ("sign", "others", "consumers_of"):
        monkeypatch.setattr(reader, name, getattr(roll, name))
    reading = reader.Reader(
        [subscription(), subscription()], cast("Redis", None), Options(), cast("Any", None)
    )
    reading._without_group.clear()
    reading._undrained.clear()
    reading._received_at = 0.0
    reading.is_resting = True
    await reader.search_for_resting([reading])  # the first search is of all
    assert reading.needs_search
    cast("Any", reading)._suspects = None
    roll.commands.clear()
    while roll.now < 160:
        assert not await reader.search_for_resting([reading])
        roll.now += 2.0
    assert len(roll.commands) <= 3 * 60 / LEASE.total_seconds()
    assert max(later - earlier for earlier, later in pairwise(roll.signed_at)) == 4.0
    roll.died_at = roll.now - 0.5
    while not await reader.search_for_resting([reading]):
        roll.now += 2.0
        assert roll.now <= roll.died_at + 8.0
    assert reading._suspects == reading._subscriptions
    roll.now += 2.0
    assert await reader.search_for_resting([reading])  # until its entries are taken over
    reading._stopping.set()
    cast("Any", reading._subscriptions[0].group).stream = "stream"
    await reading._recover(RedisError())
    signatures = len(roll.signed_at)
    await reading._roll.suspects(reading._subscriptions)
    assert len(roll.signed_at) == signatures + 1
