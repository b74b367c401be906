"""Archiver of a running worker, also after a flush of Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from events.names import ARCHIVER, Lane, Names, Topic
from tests.support.databases import Database
from tests.support.running import headrace
from tests.support.waiting import eventually

NAMES = Names()
STREAM = NAMES.stream(Topic.of_lane(Lane.LIVE))
pytestmark = pytest.mark.timeout(60)


async def _value(database: Database, query: str) -> Any:
    connection = await asyncpg.connect(database.owner_url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def _archived(database: Database) -> int:
    return int(
        await _value(
            database,
            "select coalesce(sum(entries), 0) from archive_segments where kind = 'events'",
        )
    )


async def test_what_is_published_is_archived_and_acknowledged(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Published changes are written to archive files and acknowledged."""
    async with headrace(redis_url, database) as running, Redis.from_url(redis_url) as redis:
        await running.change("a.md", "Alpha")
        await running.change("b.md", "Beta", lane=Lane.BULK)
        await eventually(lambda: _is(database, 2), "both changes are archived")
        await eventually(lambda: _nothing_pending(redis), "they are acknowledged")
    assert len(list((tmp_path / "home" / "archive").rglob("*.zst"))) >= 2


async def _is(database: Database, count: int) -> bool:
    return await _archived(database) == count


async def _nothing_pending(redis: Redis) -> bool:
    """Return whether the archiver has acknowledged what it read; it does so after the commit."""
    pending: Any = await redis.xpending(STREAM, ARCHIVER)
    return bool(pending["pending"] == 0)


async def test_archiving_goes_on_after_redis_was_emptied(
    redis_url: str, database: Database
) -> None:
    """After a flush, new changes are indexed and archived."""
    async with headrace(redis_url, database) as running, Redis.from_url(redis_url) as redis:
        await running.change("a.md", "Alpha")
        await eventually(lambda: _is(database, 1), "the change is archived")
        await redis.flushall()
        outcome = await running.change("b.md", "Beta")
        assert outcome.type == "document.indexed"
        await eventually(lambda: _is(database, 2), "the second change is archived")


async def test_what_is_no_change_is_let_go(redis_url: str, database: Database) -> None:
    """A malformed entry does not stop the archiver and does not stay pending."""
    async with headrace(redis_url, database) as running, Redis.from_url(redis_url) as redis:
        await redis.xadd(STREAM, {"event": "nonsense"})
        await running.change("a.md", "Alpha")
        await eventually(lambda: _is(database, 1), "the change is archived")
        await eventually(lambda: _nothing_pending(redis), "both entries are acknowledged")
