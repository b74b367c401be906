"""Durable publishing: an event is stored in the outbox until it is archived."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from events.client.blocking import BlockingClient
from events.client.publisher import Publisher
from events.models import DocumentChanged, parse_event
from events.names import Lane
from events.outbox import AssignedPosition
from runtime.errors import ConfigurationError, EventIdReused, Unavailable
from store.archive import Archive
from store.postgres.pool import Database
from tests.support.archives import ArchiveAt
from tests.support.durable import NAMES, PROJECT, Durable, change, number_of
from tests.support.waiting import within


async def test_an_event_is_kept_with_its_place_until_it_is_archived(
    durable: Durable, archive: Archive
) -> None:
    """The outbox keeps an event with its position until it is archived."""
    event = change()
    receipt = await durable.publish(event, Lane.BULK)
    row = (await durable.rows())[event.id]
    assert (row["position"], row["lane"], row["partition"]) == (number_of(receipt), "bulk", 0)
    assert parse_event(row["event"]) == event
    await durable.archive(archive)
    assert await durable.rows() == {}


async def test_an_event_that_is_not_durable_is_not_kept(durable: Durable) -> None:
    """Only durable events are stored in the outbox."""
    await durable.publish(change())
    await durable.publisher.publish(change("b.md"))
    assert len(await durable.rows()) == 1


async def test_events_of_several_projects_are_kept_in_one_call(durable: Durable) -> None:
    """Events of several projects can be published in one call."""
    events = [change(), change(project="other"), change("b.md")]
    await durable.publisher.publish_many(events, durable=True)
    assert (await durable.rows()).keys() == {events[0].id, events[2].id}


async def test_publishing_durably_without_an_outbox_is_refused(redis: Redis) -> None:
    """Without an outbox durable publishing is refused, and nothing is published."""
    with pytest.raises(ConfigurationError, match="outbox"):
        await Publisher(redis, NAMES).publish(change(), durable=True)
    assert not await redis.keys("*")


async def test_the_blocking_client_publishes_durably_too(redis_url: str, redis: Redis) -> None:
    """The blocking client also refuses durable publishing without an outbox."""
    with BlockingClient.connect(redis_url) as client:
        with pytest.raises(ConfigurationError, match="outbox"):
            await asyncio.to_thread(client.publish, change(), durable=True)
        with pytest.raises(ConfigurationError, match="outbox"):
            await asyncio.to_thread(client.publish_many, [change()], durable=True)
    assert not await redis.keys("*")


async def test_nothing_is_published_that_could_not_be_kept(
    durable: Durable, worker: Database, redis: Redis
) -> None:
    """Nothing is published if Postgres can't store the event."""
    await worker.close()
    with pytest.raises(Unavailable):
        await durable.publish(change())
    assert not await redis.keys("*")


async def test_publishing_again_keeps_one_event(durable: Durable) -> None:
    """An event that is published again is stored once, also if the first attempt failed early."""
    event = change()
    await durable.keep(event)
    first = await durable.publish(event)
    second = await durable.publish(event)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.token == second.token
    assert (await durable.rows())[event.id]["position"] == number_of(first)
    assert await durable.length() == 1


async def test_big_content_is_kept_by_reference(
    redis: Redis, worker: Database, kept: ArchiveAt
) -> None:
    """Large content of a durable event is stored by reference and reaches the archive."""
    durable = Durable.at(redis, worker, inline_limit_bytes=10)
    event = change(content="more than ten bytes")
    await durable.publish(event)
    body = parse_event((await durable.rows())[event.id]["event"])
    assert isinstance(body, DocumentChanged)
    assert body.data.content_ref is not None
    await redis.flushall()
    assert await durable.republish() == 1
    await durable.archive(kept.archive)
    sha256 = body.data.content_ref.sha256
    assert await kept.archive.content(PROJECT, sha256) == b"more than ten bytes"


async def test_many_publishers_of_the_same_events_do_not_block_each_other(
    durable: Durable,
) -> None:
    """Publishers of the same events in different orders do not block each other."""
    events = [change(f"{number}.md") for number in range(100)]
    orders = [events, events[::-1], events[50:] + events[:50]] * 3
    async with within(20):
        tries = [durable.publisher.publish_many(order, durable=True) for order in orders]
        receipts = await asyncio.gather(*tries)
    assert sum(not receipt.duplicate for some in receipts for receipt in some) == 100
    assert await durable.length() == 100


async def test_a_place_is_noted_without_waiting_for_the_archive(
    durable: Durable, worker: Database
) -> None:
    """Positions are recorded while another transaction removes an event of the same batch."""
    event, other = change(), change("b.md")
    await durable.keep(event, other)
    assigned = [
        AssignedPosition(PROJECT, one.id, f"live:0:1-{n}") for n, one in enumerate((event, other))
    ]
    async with worker.scope((await durable.rows())[event.id]["project_id"]) as connection:
        await connection.execute("delete from outbox where event_id = $1", event.id)
        async with within(5):
            await durable.outbox.assign(assigned)
    assert [row["position"] for row in (await durable.rows()).values()] == [1 << 21 | 1 << 1 | 1]


async def test_a_durable_event_with_the_id_of_another_change_is_refused_and_dropped(
    durable: Durable, kept: ArchiveAt
) -> None:
    """The outbox relay drops it, although it waits for the archive like a lost event."""
    event = change()
    other = change("b.md").model_copy(update={"id": event.id})
    receipt = await durable.publish(event)
    await durable.archive(kept.archive)

    with pytest.raises(EventIdReused) as refused:
        await durable.publish(other)

    assert refused.value.event_ids == (event.id,)
    assert await durable.republish() == 0
    assert await durable.rows() == {}
    assert await durable.length() == 1
    await durable.archive(kept.archive)
    archived = await kept.changes(project=PROJECT)
    assert [change.position for change in archived] == [number_of(receipt)]


async def test_the_other_durable_events_of_a_call_with_a_reused_id_are_kept(
    durable: Durable, redis: Redis
) -> None:
    former = change("former.md")
    await durable.publisher.publish(former)
    reused = change("b.md").model_copy(update={"id": former.id})
    events = [change("a.md"), change("c.md")]

    with pytest.raises(EventIdReused):
        await durable.publisher.publish_many([events[0], reused, events[1]], durable=True)

    rows = await durable.rows()
    assert all(rows[event.id]["position"] is not None for event in events)
    await redis.flushall()
    await durable.republish()
    assert {event.id for event in events} <= {found.event.id for found in await durable.log()}


async def test_a_republished_event_keeps_its_fingerprint(durable: Durable, redis: Redis) -> None:
    """Its id is refused for another change after the loss of Redis too."""
    event = change()
    await durable.publish(event)
    await redis.flushall()
    assert await durable.republish() == 1

    assert (await durable.publish(event)).duplicate
    with pytest.raises(EventIdReused):
        await durable.publisher.publish(change("b.md").model_copy(update={"id": event.id}))
