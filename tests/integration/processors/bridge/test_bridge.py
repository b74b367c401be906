"""Dead letters of messages, and the changes that are passed on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from faust.types import TP
from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.models import DocumentChanged
from events.names import BRIDGE, Lane, LogPosition, Names, Topic
from events.server.connection import connect
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.transport import InFlightEntry
from processors.bridge.bridge import DeadMessages, _Changes, _Received
from processors.deliveries import Delivery, Settlement

NAMES = Names("kb", partitions=4)
URI = "leave.md"
BODY = {"type": "document.changed", "data": {"project": "docs", "uri": URI, "content": "30 days"}}


def letter(raw: bytes, offset: int) -> DeadLetter:
    now = datetime.now(UTC)
    return DeadLetter(
        event=raw,
        topic="kb.document.changed.bulk",
        partition=7,
        entry_id=f"1000-{offset}",
        group=BRIDGE,
        error="MalformedEvent",
        detail="not an event",
        attempts=1,
        first_at=now,
        last_at=now,
    )


def delivery(raw: bytes, entry_id: str, **fields: bytes) -> Delivery[DocumentChanged]:
    named = {name.encode(): value for name, value in fields.items()}
    entry = InFlightEntry(TP("kb.document.changed.live", 7), entry_id, {b"event": raw, **named})
    return Delivery(
        DocumentChanged.from_bytes(raw),
        Topic.CHANGED_LIVE,
        entry,
        None,
        LogPosition(0, 7),
        cast("Settlement", None),
    )


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


async def test_a_dead_message_waits_for_redis_and_can_be_redriven(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names its place, is in the partition of its document, and keeps the time of its letter."""
    failures = [ConnectionError("it restarts")]
    add = redis.xadd

    async def fail_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await add(*arguments)

    monkeypatch.setattr(redis, "xadd", fail_once)
    store = DeadMessages(redis, NAMES, "kb.", timedelta())
    await store(letter(b"garbage", 2**40))
    assert not failures
    await store(letter(json.dumps(BODY).encode(), 12))
    letters = DeadLetters(redis, NAMES)
    found = {letter.partition: letter for letter in await letters.list(topic=Topic.CHANGED_BULK)}
    garbage, change = found.pop(0), found.pop(NAMES.partition_of("docs", URI))
    assert (garbage.event, found) == (b"garbage", {})
    assert change.entry_id == "kb.document.changed.bulk/7/12"
    assert change.detail.startswith(
        "Kafka topic kb.document.changed.bulk, partition 7, offset 12: "
    )
    await letters.redrive(change.id)
    stream = NAMES.stream(Topic.CHANGED_BULK, change.partition)
    rows: Any = await redis.xrange(stream)
    [(_, fields)] = rows
    assert int(fields[b"position"]) == change.position


async def test_a_message_without_an_id_has_the_same_id_each_time(redis: Redis) -> None:
    """Messages at two places are two changes. A signature and its bytes stay as they are."""
    raw = json.dumps(BODY).encode()
    first, again, other = (_Received.of(delivery(raw, at)) for at in ("5-1", "5-1", "5-2"))
    assert first.event.id == again.event.id != other.event.id
    named = _Received.of(delivery(json.dumps({**BODY, "id": "a"}).encode(), "5-3"))
    assert named.event.id == "a"

    changes = _Changes(Publisher(redis, NAMES), Lane.LIVE)
    await changes.run([delivery(raw, "5-1"), delivery(raw, "5-1", signature=b"v1:key:00")])
    entries: Any = await redis.xrange(
        NAMES.stream(Topic.CHANGED_LIVE, NAMES.partition_of("docs", URI))
    )
    plain, signed = (fields for _, fields in entries)
    assert json.loads(plain[b"event"])["id"] == first.event.id
    assert signed == {b"event": raw, b"signature": b"v1:key:00"}
