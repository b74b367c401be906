"""Trimming of questions from their stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from fakeredis import FakeAsyncRedis

from events.names import GROUPS, Names, Topic
from events.streams.trim import trim_queries

NAMES = Names()
KEY = NAMES.stream(Topic.QUERY)
GROUP = GROUPS[Topic.QUERY]
LONG_AGO = [f"{number}-0" for number in range(1, 301)]


@pytest.fixture
async def redis() -> AsyncIterator[FakeAsyncRedis]:
    """Server with 300 old, unread questions."""
    async with FakeAsyncRedis() as fake:
        await fake.xgroup_create(KEY, GROUP, id="0", mkstream=True)
        for entry_id in LONG_AGO:
            await fake.xadd(KEY, {"event": "{}"}, id=entry_id)
        yield fake


async def _read(redis: FakeAsyncRedis, count: int) -> None:
    await redis.xreadgroup(GROUP, "worker", {KEY: ">"}, count=count)


async def _kept(redis: FakeAsyncRedis) -> set[str]:
    return {entry_id.decode() for entry_id, _ in await redis.xrange(KEY)}


async def test_unread_questions_stay(redis: FakeAsyncRedis) -> None:
    """An unread question stays, however old it is."""
    await trim_queries(redis, NAMES)
    assert await _kept(redis) == set(LONG_AGO)


async def test_pending_questions_stay(redis: FakeAsyncRedis) -> None:
    """A pending question stays, because another worker may have to read it again."""
    await _read(redis, 300)
    await redis.xack(KEY, GROUP, *LONG_AGO[:200])
    await trim_queries(redis, NAMES)
    assert set(LONG_AGO[200:]) <= await _kept(redis)


async def test_answered_questions_go(redis: FakeAsyncRedis) -> None:
    """Acknowledged old questions are trimmed."""
    await _read(redis, 300)
    await redis.xack(KEY, GROUP, *LONG_AGO)
    assert await trim_queries(redis, NAMES) >= 200
    assert len(await _kept(redis)) <= 100


async def test_recent_questions_stay(redis: FakeAsyncRedis) -> None:
    """An acknowledged question that is newer than ``keep`` stays."""
    await redis.delete(KEY)
    await redis.xgroup_create(KEY, GROUP, id="0", mkstream=True)
    recent = await redis.xadd(KEY, {"event": "{}"})
    await _read(redis, 1)
    await redis.xack(KEY, GROUP, recent)
    await trim_queries(redis, NAMES, keep=timedelta(minutes=10))
    assert await _kept(redis) == {recent.decode()}


async def test_a_stream_without_a_group_is_left_alone() -> None:
    """A stream without a group is not trimmed, and trimming it does not fail."""
    async with FakeAsyncRedis() as fake:
        assert await trim_queries(fake, NAMES) == 0
