"""Network failures during publishing: each event is in the log once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from events.client.publisher import Publisher, Receipt
from events.models import DocumentChange, DocumentChanged, parse_event
from events.names import Lane, Names, Topic
from events.server.connection import connect
from runtime.errors import Unavailable
from tests.support.proxy import Fault, Proxy, Way, running_proxy
from tests.support.streams import read_stream
from tests.support.waiting import eventually, patience

NAMES = Names()
BULK = NAMES.stream(Topic.CHANGED_BULK)
CHANGES = [
    DocumentChanged(id=f"e{number}", data=DocumentChange(project="p", uri=f"{number}", content="x"))
    for number in range(600)
]
"""Enough changes for more than two round trips."""
TIMEOUT_SECONDS = 0.3
"""Limit of a reply on a quiet machine; a reply that comes later leads to another connection."""


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """Direct connection, without the proxy; its server has the script loaded."""
    client = connect(redis_url)
    await Publisher(client, NAMES).publish(CHANGES[0])
    yield client
    await client.aclose()


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    async with running_proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def far(redis: Redis, proxy: Proxy) -> AsyncIterator[Redis]:
    """Connection through the proxy, with a shorter timeout than the default."""
    client = connect(f"{proxy.url}?socket_timeout={patience(TIMEOUT_SECONDS)}")
    yield client
    await client.aclose()


async def entries(redis: Redis) -> Counter[str]:
    """Number of entries by event id."""
    found = await read_stream(redis, BULK)
    return Counter(parse_event(entry.fields[b"event"]).id for entry in found)


async def assert_each_is_there_once(redis: Redis, receipts: Sequence[Receipt]) -> None:
    found = await read_stream(redis, BULK)
    tokens = {parse_event(one.fields[b"event"]).id: f"bulk:0:{one.id}" for one in found}
    assert len(found) == len(tokens) == len(CHANGES) - 1
    assert {one.event_id: one.token for one in receipts[1:]} == tokens


@pytest.mark.parametrize(
    ("way", "pattern", "fault"),
    [
        *((Way.TO_SERVER, b'"e300"', fault) for fault in Fault),
        (Way.TO_CLIENT, b"bulk:0:", Fault.CUT),
        (Way.TO_CLIENT, b"bulk:0:", Fault.RESET),
    ],
)
async def test_an_event_is_added_once(
    redis: Redis, proxy: Proxy, far: Redis, way: Way, pattern: bytes, fault: Fault
) -> None:
    """An event is added once although requests or replies are cut, lost or late."""
    trap = proxy.trap(way, pattern, fault)
    receipts = await Publisher(far, NAMES).publish_many(CHANGES, Lane.BULK)
    proxy.heal()
    await assert_each_is_there_once(redis, receipts)
    assert (trap.struck, proxy.accepted) == (1, 2), "it went on by another connection"


async def test_a_reply_that_is_late_by_more_than_two_timeouts(
    redis: Redis, proxy: Proxy, far: Redis
) -> None:
    """A reply that is later than two timeouts leads to no second entry."""
    publishing = asyncio.create_task(Publisher(far, NAMES).publish_many(CHANGES, Lane.BULK))
    proxy.stall(Way.TO_CLIENT)
    await eventually(lambda: proxy.accepted >= 3, "it tries a third time")
    proxy.heal()
    await assert_each_is_there_once(redis, await publishing)


async def test_a_call_that_failed_is_safely_repeated(
    redis: Redis, proxy: Proxy, far: Redis
) -> None:
    """A call that failed can be repeated without publishing an event twice."""
    longest = timedelta(seconds=patience(2 * TIMEOUT_SECONDS))
    publisher = Publisher(far, NAMES, patience=longest)
    proxy.trap(Way.TO_SERVER, b'"e300"', Fault.STALL, times=1_000)
    with pytest.raises(Unavailable):
        await publisher.publish_many(CHANGES, Lane.BULK)
    assert 0 < len(await entries(redis)) < len(CHANGES)
    proxy.heal()
    receipts = await publisher.publish_many(CHANGES, Lane.BULK)
    assert any(one.duplicate for one in receipts[1:])
    await assert_each_is_there_once(redis, receipts)
