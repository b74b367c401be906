"""Publisher on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    content_hash,
    parse_event,
)
from events.names import Lane, LogPosition, Names, Topic
from events.server.connection import connect
from events.signatures import SigningKey
from runtime.errors import EventIdReused, LimitExceeded, LogFull, Unavailable
from tests.support.streams import read_stream

NAMES = Names()
LIVE = NAMES.stream(Topic.CHANGED_LIVE)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


def change(uri: str = "a.md", content: str = "text", project: str = "p") -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project=project, uri=uri, content=content))


async def test_publishing_an_event_id_twice_adds_one_entry(redis: Redis) -> None:
    event = change()
    publisher = Publisher(redis, NAMES)

    first = await publisher.publish(event)
    second = await publisher.publish(event, Lane.BULK)

    assert await redis.xlen(LIVE) == 1
    assert await redis.xlen(NAMES.stream(Topic.CHANGED_BULK)) == 0
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.token == second.token


async def test_a_token_names_the_entry_that_holds_the_event(redis: Redis) -> None:
    event = change()

    receipt = await Publisher(redis, NAMES).publish(event)

    position = LogPosition.from_token(receipt.token)
    [entry] = await read_stream(redis, LIVE)
    assert position == LogPosition.of_entry(Lane.LIVE, 0, entry.id)
    assert parse_event(entry.fields[b"event"]) == event


async def test_an_event_id_of_another_project_is_another_event(redis: Redis) -> None:
    event = change()
    namesake = change(project="q").model_copy(update={"id": event.id})

    receipts = await Publisher(redis, NAMES).publish_many([event, namesake])

    assert [receipt.duplicate for receipt in receipts] == [False, False]


async def test_concurrent_publishers_of_one_event_add_one_entry(redis: Redis) -> None:
    event = change()

    receipts = await asyncio.gather(*(Publisher(redis, NAMES).publish(event) for _ in range(50)))

    assert await redis.xlen(LIVE) == 1
    assert sum(not receipt.duplicate for receipt in receipts) == 1
    assert len({receipt.token for receipt in receipts}) == 1


async def test_many_changes_keep_their_order_over_several_round_trips(redis: Redis) -> None:
    changes = [change(f"{i}.md") for i in range(1000)]

    receipts = await Publisher(redis, NAMES).publish_many(changes, Lane.BULK)

    entries = await read_stream(redis, NAMES.stream(Topic.CHANGED_BULK))
    assert [parse_event(entry.fields[b"event"]) for entry in entries] == changes
    positions = [LogPosition.from_token(receipt.token).position for receipt in receipts]
    assert positions == sorted(positions)


async def test_publishing_survives_a_flush_of_the_scripts(redis: Redis) -> None:
    publisher = Publisher(redis, NAMES)
    await publisher.publish(change("a"))
    await redis.script_flush()

    receipts = await publisher.publish_many([change("b"), change("c")])

    assert [receipt.duplicate for receipt in receipts] == [False, False]
    assert await redis.xlen(LIVE) == 3


async def test_no_change_of_a_round_trip_finds_the_script_missing(redis: Redis) -> None:
    """If another client loaded it in the middle, the first changes would follow the last ones."""
    await redis.script_flush()
    await redis.config_resetstat()

    await Publisher(redis, NAMES).publish_many([change("a"), change("b")])

    assert "errorstat_NOSCRIPT" not in await redis.info("errorstats")
    assert await redis.xlen(LIVE) == 2


async def test_changes_spread_over_partitions_by_document(redis: Redis) -> None:
    names = Names(partitions=4)

    receipts = await Publisher(redis, names).publish_many([change(f"{i}") for i in range(64)])

    for i, receipt in enumerate(receipts):
        assert LogPosition.from_token(receipt.token).partition == names.partition_of("p", f"{i}")
    lengths = [await redis.xlen(names.stream(Topic.CHANGED_LIVE, p)) for p in range(4)]
    assert sum(lengths) == 64
    assert min(lengths) > 0


class Shelf:
    """Content store in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, str | bytes] = {}

    async def put(self, project: str, content: str | bytes) -> ContentReference:
        digest = content_hash(content)
        self.contents[digest] = content
        raw = content.encode() if isinstance(content, str) else content
        return ContentReference(sha256=digest, size_bytes=len(raw))


async def test_big_content_travels_by_reference(redis: Redis) -> None:
    shelf = Shelf()
    publisher = Publisher(redis, NAMES, inline_limit_bytes=10, content_store=shelf)

    await publisher.publish_many([change("small", "é" * 5), change("big", "é" * 6)])

    small, big = [parse_event(entry.fields[b"event"]) for entry in await read_stream(redis, LIVE)]
    assert isinstance(small, DocumentChanged)
    assert isinstance(big, DocumentChanged)
    assert small.data.content == "é" * 5
    assert big.data.content is None
    assert big.data.content_ref is not None
    assert shelf.contents[big.data.content_ref.sha256] == "é" * 6


async def test_big_content_without_a_store_is_refused_with_the_cure(redis: Redis) -> None:
    with pytest.raises(LimitExceeded, match=r"11 bytes .*at most 10.*content_ref"):
        await Publisher(redis, NAMES, inline_limit_bytes=10).publish(change(content="x" * 11))
    assert not await redis.exists(LIVE)


async def test_a_nearly_full_redis_refuses_new_changes(redis: Redis) -> None:
    used = (await redis.info("memory"))["used_memory"]
    await redis.config_set("maxmemory", int(used * 1.02))
    try:
        with pytest.raises(LogFull, match="maxmemory"):
            await Publisher(redis, NAMES).publish(change())
    finally:
        await redis.config_set("maxmemory", 0)


async def test_an_unreachable_redis_names_the_setting() -> None:
    redis = connect("redis://127.0.0.1:1")
    publisher = Publisher(redis, NAMES, patience=timedelta())
    with pytest.raises(Unavailable, match="HEADRACE_REDIS_URL"):
        await publisher.publish(change())
    await redis.aclose()


def again(event: DocumentChanged, **fields: Any) -> DocumentChanged:
    """Another event with the id of ``event``, a second later, with other ``fields``."""
    data = DocumentChange(**{**event.data.model_dump(), **fields})
    time = event.time + timedelta(seconds=1)
    return DocumentChanged(id=event.id, time=time, source="elsewhere", batch="b1", data=data)


async def test_an_event_id_used_again_for_another_document_is_refused(redis: Redis) -> None:
    event = change()
    publisher = Publisher(redis, NAMES)
    receipt = await publisher.publish(event)

    with pytest.raises(EventIdReused) as refused:
        await publisher.publish(again(event, uri="b.md"), Lane.BULK)

    assert event.id in refused.value.message
    assert receipt.token in refused.value.message
    assert "id of its own" in refused.value.remedy
    assert refused.value.event_ids == (event.id,)
    assert await redis.xlen(LIVE) == 1
    assert not await redis.exists(NAMES.stream(Topic.CHANGED_BULK))


async def test_the_same_change_made_again_is_a_duplicate(redis: Redis) -> None:
    """Its time, source and batch don't count, nor does the form in which its content is sent."""
    event = change(content="more than ten bytes")
    receipt = await Publisher(redis, NAMES).publish(event)
    by_reference = Publisher(redis, NAMES, inline_limit_bytes=10, content_store=Shelf())

    repeated = await by_reference.publish(again(event))

    assert (repeated.duplicate, repeated.token) == (True, receipt.token)
    assert await redis.xlen(LIVE) == 1


async def test_all_other_events_of_a_call_with_a_reused_id_are_published(redis: Redis) -> None:
    """The refused events are in the middle of the first and at the end of the second round trip."""
    publisher = Publisher(redis, NAMES)
    former = [change("former.md"), change("former too.md")]
    await publisher.publish_many(former)
    events = [change(f"{number}.md") for number in range(300)]
    calls = [*events[:100], again(former[0], title="A"), *events[100:], again(former[1], title="B")]

    with pytest.raises(EventIdReused, match="were published with other changes") as refused:
        await publisher.publish_many(calls)

    assert refused.value.event_ids == (former[0].id, former[1].id)
    entries = await read_stream(redis, LIVE)
    assert [parse_event(entry.fields[b"event"]) for entry in entries] == [*former, *events]
    receipts = await publisher.publish_many(events)
    assert all(receipt.duplicate for receipt in receipts)


async def test_one_call_cannot_use_an_id_for_two_changes(redis: Redis) -> None:
    event = change()
    with pytest.raises(EventIdReused):
        await Publisher(redis, NAMES).publish_many([event, again(event, content="other text")])
    [entry] = await read_stream(redis, LIVE)
    assert parse_event(entry.fields[b"event"]) == event


@pytest.mark.parametrize("rest", ["", " 9-1", " of nothing", " 9-1 short"])
async def test_an_id_that_an_older_publisher_recorded_is_a_duplicate(
    redis: Redis, rest: str
) -> None:
    """Its record has no fingerprint, so the changes can't be compared."""
    event = change()
    await redis.set(NAMES.seen("p", event.id, 0), f"live:0:5-0{rest}")

    receipt = await Publisher(redis, NAMES).publish(event)

    assert (receipt.token, receipt.duplicate) == ("live:0:5-0", True)
    assert not await redis.exists(LIVE)


async def test_older_publishers_read_the_record_of_an_id(redis: Redis) -> None:
    """They look for a token that ends at a blank."""
    event = change()
    receipt = await Publisher(redis, NAMES).publish(event)
    record = await redis.get(NAMES.seen("p", event.id, 0))
    assert record == f"{receipt.token} {event.data.fingerprint()}".encode()


async def test_a_signed_event_with_the_id_of_another_change_is_an_event_of_its_own(
    redis: Redis,
) -> None:
    publisher = Publisher(redis, NAMES, signing_key=SigningKey.new())
    event = change()

    receipts = await publisher.publish_many([event, event, again(event, uri="b.md")])

    assert [receipt.duplicate for receipt in receipts] == [False, True, False]
    assert await redis.xlen(LIVE) == 2
