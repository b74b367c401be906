"""Malformed entries: a worker continues, and none stays pending."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from events.models import DocumentIndexed
from events.names import Lane, Names, Topic
from events.server.connection import connect
from events.streams.backlog import read_backlog
from events.streams.dead_letters import DeadLetters
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.databases import Database
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually

BULK = Names().stream(Topic.CHANGED_BULK)
EXTREMES = {
    "big": 10**4000,
    "wide": 1e22,
    "tiny": 5e-324,
    "negative": -(2**63) - 1,
    "yes": True,
    "one": 1,
    "text": "\u202e\U0001f600\u0301",
}


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    async with headrace(redis_url, database, model=HASHING_MODEL) as worker:
        yield worker


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


def event(**envelope: Any) -> bytes:
    data = {"project": "docs", "uri": "a.md", "content": "Text."}
    return json.dumps({"type": "document.changed", "data": data, **envelope}).encode()


async def is_dead(redis: Redis) -> bool:
    """True if there is a dead letter and nothing is pending."""
    streams = await read_backlog(redis, Names())
    waits = any(one.oldest_unacknowledged for one in streams)
    return not waits and sum(one.dead_letters for one in streams) == 1


@pytest.mark.parametrize(
    ("entry_id", "body"),
    [
        ("9999999999999999-1", event()),
        ("9999999999999999-2", b"no event at all"),
        ("1700000000000-9999999999", event()),
        ("*", event(time="0001-01-01T00:00:00+14:00")),
        ("*", event(data="[" * 100_000)),
        ("*", b"[" * 100_000),
        ("*", b'{"type": "document.changed", "data": "' + b"x" * (33 * 2**20) + b'"}'),
    ],
)
async def test_impossible_events_die_at_once(
    running: Headrace, redis: Redis, entry_id: str, body: bytes
) -> None:
    """Impossible ids and times, deep nesting and huge bodies become dead letters at once."""
    await running.change("known.md", "The project exists.")
    await redis.xadd(BULK, {"event": body}, id=entry_id)
    await eventually(lambda: is_dead(redis), "one dead letter and nothing pending", timeout=4)
    [letter] = await DeadLetters(redis, Names()).list()
    assert letter.attempts == 1
    assert isinstance(await running.change("next.md", "It flows on."), DocumentIndexed)


async def test_extreme_metadata_comes_back(running: Headrace) -> None:
    """Numbers beyond 64 bits and unusual characters in metadata are stored and returned."""
    await running.change("a.md", "Weirs hold water.", lane=Lane.BULK, metadata=EXTREMES)
    answer = await running.client.ask("docs", "weirs")
    assert dict(answer.results[0].metadata) == EXTREMES


async def test_garbage_among_outcomes_stops_no_reader(running: Headrace, redis: Redis) -> None:
    """A reader of outcomes skips malformed entries."""
    outcomes = Names().stream(Topic.OUTCOME)
    await redis.xadd(outcomes, {"event": b"garbage"})
    await redis.xadd(outcomes, {"other": b"field"})
    assert isinstance(await running.change("a.md", "Text."), DocumentIndexed)
