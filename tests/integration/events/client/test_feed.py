"""Live feed of outcomes to several subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any

import pytest
from redis.asyncio import Redis

from events.client import feed
from events.client.feed import FedOutcome, OutcomeFeed
from events.client.outcomes import Outcome, OutcomeEntry, Outcomes
from events.models import DocumentIndexed, DocumentIndexedData
from events.names import Lane, LogPosition, Names, Topic
from events.server.connection import connect
from runtime.errors import Unavailable

IDLE = timedelta(milliseconds=50)
BURST = 300
"""More outcomes than wait for a subscriber in these tests."""


class FailingOutcomes(Outcomes):
    """Fails to read for a subscriber that is behind, once after each of ``meanwhile``."""

    def __init__(self, redis: Redis, names: Names) -> None:
        super().__init__(redis, names)
        self.meanwhile: list[Callable[[], Awaitable[object]]] = []

    async def read_all(
        self, after: Mapping[int, str], *, limit: int = 500, block: timedelta | None = None
    ) -> dict[int, list[OutcomeEntry]]:
        if block is None and self.meanwhile:
            await self.meanwhile.pop()()
            raise Unavailable("Redis is down", "start it")
        return await super().read_all(after, limit=limit, block=block)


def outcome(partition: int, number: int) -> Outcome:
    """Outcome of a change in a partition."""
    data = DocumentIndexedData(
        event_id=f"{partition}-{number}",
        token=LogPosition.of_entry(Lane.LIVE, partition, f"{number + 1}-0").token,
        project="docs",
        uri=f"{number}.md",
        change="upsert",
        outcome="indexed",
    )
    return DocumentIndexed(data=data)


@pytest.fixture(autouse=True)
def short_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few outcomes wait for a subscriber."""
    monkeypatch.setattr(feed, "_QUEUE", 64)
    monkeypatch.setattr(feed, "_RETRY_SECONDS", 0.01)


@pytest.fixture
async def reader(redis_url: str) -> AsyncIterator[Redis]:
    """Connection for reads that block."""
    async with connect(redis_url, blocking=True) as connection:
        yield connection


def event_id_of(sent: Outcome) -> str:
    """Event id of the change of an outcome."""
    assert sent.data.event_id is not None
    return sent.data.event_id


async def taken(subscriber: AsyncIterator[FedOutcome], count: int) -> list[str]:
    """Event ids of the next outcomes of a subscriber."""
    ids: list[str] = []
    while len(ids) < count:
        fed = await anext(subscriber)
        if fed.outcome is not None:
            ids.append(event_id_of(fed.outcome))
    return ids


def of_partition(ids: Sequence[str], partition: int) -> list[str]:
    """Those of the event ids that belong to a partition."""
    return [event_id for event_id in ids if event_id.startswith(f"{partition}-")]


async def test_a_slow_subscriber_gets_each_outcome_once(reader: Redis) -> None:
    """What it did not take in time is read again, also after Redis could not be reached."""
    outcomes = FailingOutcomes(reader, Names(partitions=2))
    outcome_feed = OutcomeFeed(outcomes)
    sent = [outcome(number % 2, number) for number in range(3 * BURST)]
    expected = [event_id_of(entry) for entry in sent]
    unsent = iter(sent)

    async def publish(count: int) -> None:
        await outcomes.publish(list(islice(unsent, count)))
        await taken(other, count)  # so that the reader has passed them

    async with (
        aclosing(outcome_feed.subscribe(idle=IDLE)) as slow,
        aclosing(outcome_feed.subscribe(idle=IDLE)) as other,
    ):
        for subscriber in (slow, other):
            assert (await anext(subscriber)).outcome is None
        await publish(BURST)
        ids = await taken(slow, 100)
        outcomes.meanwhile = [partial(publish, 10), partial(publish, 20)]
        ids += await taken(slow, BURST - 100 + 30)
        assert not outcomes.meanwhile
        await publish(BURST)
        ids += await taken(slow, 100)
        await outcomes.publish(list(unsent))
        ids += await taken(slow, len(sent) - len(ids))
        for partition in range(2):
            assert of_partition(ids, partition) == of_partition(expected, partition)


async def test_a_slow_subscriber_gets_the_outcomes_of_new_partitions(reader: Redis) -> None:
    names = Names(partitions=1)
    outcomes = Outcomes(reader, names)
    outcome_feed = OutcomeFeed(outcomes)
    async with (
        aclosing(outcome_feed.subscribe(idle=IDLE)) as slow,
        aclosing(outcome_feed.subscribe(idle=IDLE)) as other,
    ):
        for subscriber in (slow, other):
            assert (await anext(subscriber)).outcome is None
        names.partitions = 2
        sent = [outcome(number % 2, number) for number in range(BURST)]
        waiting = asyncio.ensure_future(taken(other, BURST))
        await outcomes.publish(sent)
        await waiting
        ids = await taken(slow, BURST)
    expected = [event_id_of(entry) for entry in sent]
    for partition in range(2):
        assert of_partition(ids, partition) == of_partition(expected, partition)


async def test_a_position_from_before_a_raise_misses_nothing_of_the_new_partition(
    reader: Redis,
) -> None:
    outcomes = Outcomes(reader, Names(partitions=2))
    sent = [outcome(number % 2, number) for number in range(4)]
    await outcomes.publish(sent)
    entries: Any = await reader.xrange(Names().stream(Topic.OUTCOME, 0), count=1)
    position = {0: entries[0][0].decode()}
    outcome_feed = OutcomeFeed(outcomes)
    async with aclosing(outcome_feed.subscribe(position, idle=IDLE)) as subscriber:
        ids = await taken(subscriber, 3)
    assert of_partition(ids, 0) == ["0-2"]
    assert of_partition(ids, 1) == ["1-1", "1-3"]
