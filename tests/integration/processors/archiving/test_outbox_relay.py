"""Outbox relay: durable changes that Redis lost are republished at their positions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from redis.asyncio import Redis

from events.client.republisher import Republishing
from events.models import DocumentChanged
from events.names import Lane, LogPosition, Topic
from processors.archiving.outbox_relay import OutboxRelay
from store.archive import Archive
from store.generations.catalog import Projects
from tests.support.archives import ArchiveAt
from tests.support.durable import NAMES, PROJECT, Durable, change, number_of
from tests.support.streams import read_stream
from tests.support.writes import RECIPE

LIVE = NAMES.stream(Topic.CHANGED_LIVE)


async def positions(durable: Durable) -> dict[str, int]:
    """Log positions of the events in the streams, by id."""
    return {found.event.id: found.position for found in await durable.log()}


async def test_what_is_in_its_stream_is_left_alone(durable: Durable) -> None:
    """An event that is in its stream is not republished."""
    await durable.publish(change())
    assert [await durable.republish(), await durable.republish()] == [0, 0]
    assert await durable.length() == 1


async def test_what_a_flush_took_comes_back_to_its_place(durable: Durable, redis: Redis) -> None:
    """A flushed event is republished to its lane, position and token."""
    events = [change("a.md"), change("b.md")]
    receipts = [await durable.publish(events[0]), await durable.publish(events[1], Lane.BULK)]
    await redis.flushall()
    assert [await durable.republish(), await durable.republish()] == [2, 0]
    assert await positions(durable) == {
        event.id: number_of(receipt) for event, receipt in zip(events, receipts, strict=True)
    }
    assert [await durable.length(lane) for lane in (Lane.LIVE, Lane.BULK)] == [1, 1]
    again = await durable.publish(events[0])
    assert (again.token, again.duplicate) == (receipts[0].token, True)
    assert await durable.length() == 1


async def test_a_second_flush_changes_nothing_about_it(durable: Durable, redis: Redis) -> None:
    """An event keeps its position through several flushes."""
    event = change()
    receipt = await durable.publish(event)
    for _ in range(3):
        await redis.flushall()
        assert await durable.republish() == 1
        assert await positions(durable) == {event.id: number_of(receipt)}


async def test_what_a_publisher_may_have_spoilt_keeps_nothing_else(
    durable: Durable, redis: Redis
) -> None:
    """Invalid values in the outbox or in Redis do not stop the other events."""
    names = ("position", "time", "partition", "trace", "token", "whole")
    events = {name: change(f"{name}.md") for name in names}
    await durable.keep(*events.values())
    spoil = "update outbox set {} where event_id = $1"
    await durable.execute(spoil.format("position = -1"), events["position"].id)
    await durable.execute(spoil.format("created_at = '-infinity'"), events["time"].id)
    await durable.execute(spoil.format("partition = -7"), events["partition"].id)
    await redis.set(NAMES.seen(PROJECT, events["trace"].id, 0), b"\xff")
    await redis.set(NAMES.seen(PROJECT, events["token"].id, 0), b"live:0:1-1 of no entry")
    assert [await durable.republish(), await durable.republish()] == [5, 0]
    assert (await positions(durable)).keys() == {
        event.id for name, event in events.items() if name != "partition"
    }


async def test_what_never_came_to_redis_is_published_once(durable: Durable) -> None:
    """An event that never reached Redis gets a position by the time when it was stored."""
    event = change()
    await durable.keep(event)
    later = await durable.publish(change())
    assert [await durable.republish(), await durable.republish()] == [1, 0]
    found = await positions(durable)
    assert len(found) == 2
    assert found[event.id] < number_of(later)
    assert (await durable.rows())[event.id]["position"] == found[event.id]


async def test_a_publisher_that_was_only_slow_gets_the_token_of_the_republished_event(
    durable: Durable,
) -> None:
    """A slow publisher receives the token of the republished event, and adds no entry."""
    event = change()
    await durable.keep(event)
    await durable.republish()
    receipt = await durable.publish(event)
    assert receipt.duplicate
    assert await positions(durable) == {event.id: number_of(receipt)}


async def test_places_of_events_that_never_came_to_redis_keep_their_order(
    durable: Durable,
) -> None:
    """Derived positions of one transaction differ and keep their order."""
    events = [change(f"{number}.md") for number in range(1200)]
    await durable.keep(*events[:700])
    await durable.keep(*events[700:], lane=Lane.BULK)
    assert await durable.republish() == 1200
    found = await positions(durable)
    places = [found[event.id] for event in events]
    assert len(set(places)) == 1200
    assert places == sorted(places)


async def test_two_republishers_at_once_publish_once(durable: Durable, redis: Redis) -> None:
    """Concurrent relays publish each event once."""
    for number in range(50):
        await durable.publish(change(f"{number}.md"))
    await redis.flushall()
    counts = await asyncio.gather(durable.republish(), durable.republish(), durable.republish())
    assert sum(counts) == 50
    assert await durable.length() == 50


async def test_a_token_that_was_not_noted_is_noted(durable: Durable) -> None:
    """A position that the publisher did not record is recorded by the relay."""
    event = change()
    receipt = await durable.publisher.publish(event)
    await durable.keep(event)
    assert await durable.republish() == 0
    assert (await durable.rows())[event.id]["position"] == number_of(receipt)


async def test_the_index_knows_a_place_that_was_not_noted(durable: Durable, redis: Redis) -> None:
    """A position that only the ledger has is used for republishing."""
    event = change()
    receipt = await durable.publisher.publish(event)
    await durable.keep(event)
    await durable.execute(
        "insert into ledger (project_id, partition, position, event_id, outcome)"
        " select project_id, 0, $1, event_id, 'indexed' from outbox",
        number_of(receipt),
    )
    await redis.flushall()
    assert await durable.republish() == 1
    assert await positions(durable) == {event.id: number_of(receipt)}


async def test_an_entry_that_outlived_the_memory_of_its_id_is_found(durable: Durable) -> None:
    """An entry is found in its stream after Redis has dropped the trace of its id."""
    event = change()
    receipt = await durable.publish(event)
    await durable.forget(event)
    assert await durable.republish() == 0
    assert (await durable.publish(event)).token == receipt.token
    assert await durable.length() == 1


async def test_an_entry_that_was_trimmed_too_early_comes_back(durable: Durable) -> None:
    """An entry that was trimmed too early is republished at its position."""
    event = change()
    receipt = await durable.publish(event)
    await durable.forget(event)
    await durable.redis.xtrim(LIVE, maxlen=0)
    assert await durable.republish() == 1
    assert await positions(durable) == {event.id: number_of(receipt)}


async def test_an_entry_that_left_the_stream_before_it_was_archived_comes_back(
    durable: Durable, kept: ArchiveAt
) -> None:
    """An entry that was deleted before it was archived is republished."""
    event = change()
    receipt = await durable.publish(event)
    await durable.redis.xdel(LIVE, LogPosition.from_token(receipt.token).entry_id)
    await durable.publisher.publish(change("b.md"))
    await durable.archive(kept.archive)
    assert await durable.republish() == 1
    await durable.archive(kept.archive)
    assert await durable.rows() == {}
    assert number_of(receipt) in [one.position for one in await kept.changes(project=PROJECT)]


async def test_what_is_published_again_after_it_was_archived_does_not_wait_for_ever(
    durable: Durable, kept: ArchiveAt
) -> None:
    """An archived event that is published again leaves the outbox, and is read once."""
    event = change()
    receipt = await durable.publish(event)
    await durable.archive(kept.archive)
    assert (await durable.publish(event)).duplicate
    assert [await durable.republish(), await durable.republish()] == [1, 0]
    await durable.archive(kept.archive)
    assert await durable.rows() == {}
    archived = await kept.changes(project=PROJECT)
    assert [one.position for one in archived] == [number_of(receipt)]


async def test_republished_events_wait_for_an_archiver_that_is_behind(
    durable: Durable, archive: Archive, redis: Redis
) -> None:
    """An event is not republished again while the archiver is behind."""
    await durable.publish(change())
    await redis.flushall()
    await durable.publisher.publish(change("b.md"))
    await durable.archive(archive)
    assert [await durable.republish(), await durable.republish()] == [1, 0]
    assert await durable.length() == 2


async def test_a_republisher_that_died_before_it_noted_the_place(durable: Durable) -> None:
    """A relay records a position that a crashed one did not."""
    event = change()
    await durable.keep(event)
    await durable.republish()
    [found] = await durable.log()
    await durable.execute("update outbox set position = null")
    assert await durable.republish() == 0
    assert (await durable.rows())[event.id]["position"] == found.position


async def test_a_place_ahead_of_the_clock_is_not_kept(durable: Durable, redis: Redis) -> None:
    """A position ahead of Redis' clock is replaced, so that it can't beat newer changes."""
    event = change()
    receipt = await durable.publish(event)
    hour = 3_600_000 << 21
    await durable.execute("update outbox set position = position + $1", hour)
    await redis.flushall()
    assert await durable.republish() == 1
    [entry] = await read_stream(redis, LIVE)
    assert entry.fields.keys() == {b"event"}
    own = LogPosition.of_entry(Lane.LIVE, 0, entry.id).position
    assert number_of(receipt) < own < number_of(receipt) + hour
    assert (await durable.rows())[event.id]["position"] == own


async def test_young_events_are_left_to_their_publishers(durable: Durable) -> None:
    """Events younger than fifteen seconds are left to their publishers."""
    young, old = change("young.md"), change("old.md")
    await durable.keep(young, old)
    await durable.execute(
        "update outbox set created_at = created_at - interval '20 s' where event_id = $1", old.id
    )
    outbox_relay = OutboxRelay(Republishing(durable.redis, NAMES), durable.outbox)
    assert await outbox_relay.run_once() == 1
    assert (await positions(durable)).keys() == {old.id}


async def test_events_of_every_project_come_back(durable: Durable, redis: Redis) -> None:
    """The relay republishes the events of every project."""
    events: list[DocumentChanged] = [change(project=name) for name in ("docs", "code", "wiki")]
    await durable.publisher.publish_many(events, durable=True)
    await redis.flushall()
    assert sorted(await Projects(durable.database).all()) == ["code", "docs", "wiki"]
    assert await durable.republish() == 3
    assert (await positions(durable)).keys() == {event.id for event in events}


async def test_projects_without_events_cost_no_command(
    durable: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress of the archive is read only for projects that have events in the outbox."""
    read: list[str] = []
    archived = Republishing.archived

    async def counted(self: Republishing) -> Mapping[str, str]:
        read.append("archived")
        return await archived(self)

    monkeypatch.setattr(Republishing, "archived", counted)
    projects = Projects(durable.database, RECIPE)
    await projects.ensure_all(["without", PROJECT])
    assert (await durable.republish(), read) == (0, [])
    await durable.keep(change())
    assert await durable.outbox.projects() == [PROJECT]
    assert await durable.republish() == 1
    assert read
