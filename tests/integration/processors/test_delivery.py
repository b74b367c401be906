"""Delivery of events: read this before the transport."""

from __future__ import annotations

from collections.abc import Sequence

from redis.asyncio import Redis

from processors.agents import Delivery
from runtime.errors import Poison, Unavailable
from tests.support.waiting import eventually
from tests.support.workers import batches, letters, letters_are, nothing_pending, publish


async def test_an_event_is_pending_until_its_handler_returns(redis_url: str) -> None:
    """An event is acknowledged after its handler has returned."""
    effects: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        effects.extend(delivery.event for delivery in batch)

    async with Redis.from_url(redis_url) as redis, batches(redis_url, handle):
        await publish(redis, "event")
        await eventually(lambda: effects == ["event"], "the effect")
        await eventually(nothing_pending(redis), "the acknowledgement")


async def test_an_event_waits_out_a_server_that_is_down(redis_url: str) -> None:
    """An event is retried without limit while a server is unavailable."""
    tries: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        tries.append(batch[0].event)
        if len(tries) <= 5:
            raise Unavailable("the database is down")

    async with Redis.from_url(redis_url) as redis, batches(redis_url, handle):
        await publish(redis, "event")
        await eventually(lambda: len(tries) == 6, "the sixth try")
        await eventually(nothing_pending(redis), "the acknowledgement")
        assert not await letters(redis)


async def test_an_event_that_cant_succeed_is_kept_with_the_reason(redis_url: str) -> None:
    """A poison event becomes a dead letter, and the other events of its batch are processed."""
    effects: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        if any(delivery.event == "event poison" for delivery in batch):
            raise Poison("can't be drunk")
        effects.extend(delivery.event for delivery in batch)

    async with Redis.from_url(redis_url) as redis, batches(redis_url, handle):
        await publish(redis, "event 1", "event poison", "event 2")
        await eventually(lambda: letters_are(redis, 1), "the dead letter")
        await eventually(lambda: effects == ["event 1", "event 2"], "the others")
        [letter] = await letters(redis)
    assert (letter.event, letter.detail) == (b"event poison", "can't be drunk")
