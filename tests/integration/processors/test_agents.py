"""Fate of an event, by the result of its handler, on real Redis."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from events.streams.dead_letters import DeadLetter, DeadLetters
from events.transport import App
from processors.agents import Delivery
from runtime.errors import ConfigurationError, Poison, RateLimited, Unavailable
from tests.support.crashable_redis import CrashableRedis
from tests.support.waiting import eventually, patience
from tests.support.workers import (
    FAST,
    NAMES,
    STREAM,
    TOPIC,
    agent,
    batches,
    decode,
    letters,
    letters_are,
    nothing_pending,
    pending,
    pending_is,
    publish,
    running,
)


async def test_a_handler_that_returns_acknowledges(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """Every event reaches the handler once and is acknowledged."""
    seen: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        seen.extend(delivery.event for delivery in batch)

    events = [f"event {n}" for n in range(100)]
    await publish(own_client, *events)
    async with batches(own_redis.url, handle):
        await eventually(lambda: len(seen) >= 100, "100 events seen")
        await eventually(nothing_pending(own_client), "nothing pending")
    assert seen == events
    assert not await letters(own_client)


async def test_an_exception_is_tried_again_and_then_dead_lettered(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """After ``max_deliveries`` attempts an event becomes a dead letter with the last error."""
    attempts: list[int] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        attempts.append(batch[0].attempts)
        raise ValueError("no luck")

    [entry_id] = await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
    [letter] = await letters(own_client)
    assert attempts == [1, 2, 3]
    assert (letter.event, letter.entry_id) == (b"event", entry_id)
    assert (letter.error, letter.detail, letter.attempts) == ("ValueError", "no luck", 3)
    assert not await pending(own_client)


async def test_poison_is_dead_lettered_at_once(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A poison event is dead-lettered after one attempt."""
    seen: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        for delivery in batch:
            seen.append(delivery.event)
            if "poison" in delivery.event:
                raise Poison("undrinkable")

    await publish(own_client, "event poison")
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
    [letter] = await letters(own_client)
    assert seen == ["event poison"]
    assert (letter.error, letter.attempts) == ("Poison", 1)


async def test_one_poison_in_a_batch_costs_the_others_nothing(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A failed batch is retried one by one, and only the poison event is dead-lettered."""
    applied: Counter[str] = Counter()

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        if any("poison" in delivery.event for delivery in batch):
            raise Poison("undrinkable")
        applied.update(delivery.event for delivery in batch)

    good = [f"event {n}" for n in range(7)]
    await publish(own_client, *good[:3], "event poison", *good[3:])
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
        await eventually(nothing_pending(own_client), "nothing pending")
    assert applied == Counter(good)
    assert [letter.event for letter in await letters(own_client)] == [b"event poison"]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [({"event": b"\xff\xfe"}, b"\xff\xfe"), ({"data": "event"}, b'{"data": "event"}')],
)
async def test_bytes_that_are_no_event_are_dead_lettered(
    own_redis: CrashableRedis, own_client: Redis, fields: dict[Any, Any], kept: bytes
) -> None:
    """Malformed entries become dead letters without reaching the handler."""
    seen: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        seen.extend(delivery.event for delivery in batch)

    await own_client.xadd(STREAM, fields)
    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
        await eventually(lambda: seen, "the good event seen")
        await eventually(nothing_pending(own_client), "nothing pending")
    [letter] = await letters(own_client)
    assert (letter.error, letter.event) == ("MalformedEvent", kept)
    assert seen == ["event"]


async def test_acknowledgements_need_no_order(own_redis: CrashableRedis, own_client: Redis) -> None:
    """An event is acknowledged before an older one that is still in progress."""
    release = asyncio.Event()

    async def handle(delivery: Delivery[str]) -> None:
        if delivery.event == "event slow":
            await release.wait()

    app = App("test", broker=own_redis.url, options=FAST)
    agent(app, TOPIC, decode=decode, handle=handle, concurrency=2)
    slow, fast = await publish(own_client, "event slow", "event fast")
    async with running(app):
        await eventually(lambda: pending_is(own_client, [slow]), "only the slow one pending")
        assert fast not in await pending(own_client)
        release.set()
        await eventually(nothing_pending(own_client), "nothing pending")


async def test_done_acknowledges_before_the_batch_ends(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """An event that is marked done is acknowledged before its batch ends."""
    release = asyncio.Event()

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        batch[0].acknowledge()
        await release.wait()

    _, second = await publish(own_client, "event 1", "event 2")
    async with batches(own_redis.url, handle):
        await eventually(lambda: pending_is(own_client, [second]), "only the second pending")
        release.set()
        await eventually(nothing_pending(own_client), "nothing pending")


async def test_failures_of_servers_are_never_the_events_fault(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """Unavailable servers cost an event no attempt."""
    attempts: list[int] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        attempts.append(batch[0].attempts)
        if len(attempts) < 8:
            raise Unavailable("down")

    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: len(attempts) == 8, "the eighth attempt")
        await eventually(nothing_pending(own_client), "nothing pending")
    assert set(attempts) == {1}
    assert not await letters(own_client)


async def test_a_wait_longer_than_the_lease_is_kept(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A ``retry_after`` longer than the lease is kept."""
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        times.append(loop.time())
        if len(times) == 1:
            raise RateLimited("slow down", retry_after=timedelta(seconds=1.6))

    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(nothing_pending(own_client), "nothing pending")
        await eventually(lambda: len(times) == 2, "the second attempt")
    assert 1.5 <= times[1] - times[0] < patience(3)


async def test_the_hook_runs_before_the_dead_letter(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """The hook runs before the dead letter is stored, and is repeated if it fails."""
    calls: list[DeadLetter] = []
    stored: list[bool] = []

    async def on_dead(letter: DeadLetter) -> None:
        calls.append(letter)
        stored.append(bool(await letters(own_client)))
        if len(calls) == 1:
            raise Unavailable("can't tell anybody")

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        raise Poison("undrinkable")

    await publish(own_client, "event")
    async with batches(own_redis.url, handle, on_dead=on_dead):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
        await eventually(nothing_pending(own_client), "nothing pending")
    assert stored == [False, False]
    assert [letter.error for letter in calls] == ["Poison", "Poison"]


async def test_a_redriven_event_keeps_its_position(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A redriven event does not become newer than the events after it."""
    seen: list[Delivery[str]] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        seen.extend(batch)
        if len(seen) == 1:
            raise Poison("undrinkable")

    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
        await DeadLetters(own_client, NAMES).redrive_all()
        await eventually(lambda: len(seen) == 2, "the second delivery")
    first, again = seen
    assert first.own is not None
    assert again.own is not None
    assert again.log_position == first.log_position == first.own < again.own


@pytest.mark.parametrize("position", ["9000000000000000000", "soon", "-1"])
async def test_a_position_that_cant_be_is_malformed(
    own_redis: CrashableRedis, own_client: Redis, position: str
) -> None:
    """An invalid or future position makes an event malformed."""

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        raise AssertionError

    await own_client.xadd(STREAM, {"event": "event", "position": position})
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
    [letter] = await letters(own_client)
    assert letter.error == "MalformedEvent"


async def test_a_matter_for_the_operator_costs_no_event_its_life(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A configuration error delays events and costs them no attempt."""
    mended = False
    tries = 0

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        nonlocal tries
        tries += 1
        if not mended:
            raise ConfigurationError("the key is refused")

    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: tries > 2 * FAST.max_deliveries, "more tries than attempts")
        mended = True
        await eventually(nothing_pending(own_client), "nothing pending")
    assert not await letters(own_client)


async def test_a_day_of_retry_after_does_not_close_the_window(
    own_redis: CrashableRedis, own_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long ``retry_after`` is capped at the longest wait."""
    monkeypatch.setattr("processors.agents._LONGEST_WAIT", timedelta(milliseconds=50))
    tries = 0

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RateLimited("tomorrow", retry_after=timedelta(days=1))

    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: tries == 2, "tried again")


async def test_an_error_that_quotes_anything_still_buries(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A reason with lone surrogates and NUL is stored without them."""

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        raise Poison("bad \udc80 \x00 bytes")

    await publish(own_client, "event")
    async with batches(own_redis.url, handle):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
    [letter] = await letters(own_client)
    assert letter.detail == "bad ?  bytes"
