"""Live feed of outcomes to several subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from events.client.feed import FedOutcome, OutcomeFeed
from events.client.outcomes import Outcome, Outcomes
from events.models import DocumentIndexed, DocumentIndexedData
from events.names import Lane, LogPosition, Names
from events.server.connection import connect

IDLE = timedelta(milliseconds=50)
BURST = 300
"""More outcomes than the feed keeps for a subscriber, in one read."""


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


@pytest.fixture
async def reader(redis_url: str) -> AsyncIterator[Redis]:
    """Connection for reads that block."""
    async with connect(redis_url, blocking=True) as connection:
        yield connection


def event_id_of(sent: Outcome) -> str:
    """Event id of the change of an outcome."""
    assert sent.data.event_id is not None
    return sent.data.event_id


async def taken(feed: AsyncIterator[FedOutcome], count: int) -> list[str]:
    """Event ids of the next outcomes of a subscriber."""
    ids: list[str] = []
    while len(ids) < count:
        fed = await anext(feed)
        if fed.outcome is not None:
            ids.append(event_id_of(fed.outcome))
    return ids


def of_partition(ids: Sequence[str], partition: int) -> list[str]:
    """Those of the event ids that belong to a partition."""
    return [event_id for event_id in ids if event_id.startswith(f"{partition}-")]


async def test_a_slow_subscriber_gets_each_outcome_once(reader: Redis) -> None:
    """What it did not take in time is read again, and those that follow come as before."""
    outcomes = Outcomes(reader, Names(partitions=2))
    feed = OutcomeFeed(outcomes)
    sent = [outcome(number % 2, number) for number in range(3 * BURST)]
    expected = [event_id_of(entry) for entry in sent]
    async with (
        aclosing(feed.subscribe(idle=IDLE)) as slow,
        aclosing(feed.subscribe(idle=IDLE)) as other,
    ):
        for subscriber in (slow, other):
            assert (await anext(subscriber)).outcome is None
        first: list[str] = []
        for start in (0, BURST):
            await outcomes.publish(sent[start : start + BURST])
            await taken(other, BURST)  # so that the reader has passed the burst
            first += await taken(slow, 100)
        await outcomes.publish(sent[2 * BURST :])
        rest = await taken(slow, 3 * BURST - len(first))
        for partition in range(2):
            assert of_partition([*first, *rest], partition) == of_partition(expected, partition)


async def test_a_slow_subscriber_gets_the_outcomes_of_new_partitions(reader: Redis) -> None:
    names = Names(partitions=1)
    outcomes = Outcomes(reader, names)
    feed = OutcomeFeed(outcomes)
    async with (
        aclosing(feed.subscribe(idle=IDLE)) as slow,
        aclosing(feed.subscribe(idle=IDLE)) as other,
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
