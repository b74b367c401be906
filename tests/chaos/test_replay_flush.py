"""Loss of Redis: the archive still has the log."""

from __future__ import annotations

from redis.asyncio import Redis

from tests.chaos.journal import Journal
from tests.chaos.seeds import size
from tests.chaos.staging import Stage
from tests.chaos.wholeness import live_digest
from tests.support.waiting import eventually

CHANGES = size(80, thorough=200)
LATER_CHANGES = 40


async def test_an_index_is_rebuilt_after_redis_was_flushed(stage: Stage, redis_url: str) -> None:
    """A replay after a flush gives the same digest, and later changes are indexed."""
    journal = Journal(5)
    await stage.fill(journal, CHANGES)
    await eventually(
        lambda: _archived(stage, CHANGES), "all changes are archived", timeout=30, every=0.1
    )
    before = await _digest(stage, journal)

    redis = Redis.from_url(redis_url)
    await redis.flushall()
    await redis.aclose()
    assert await _replayed(stage, journal) == before == await _digest(stage, journal)

    receipts = await stage.fill(journal, LATER_CHANGES)
    await stage.assert_settles_whole(journal, receipts)
    assert await _archived(stage, CHANGES)
    assert await _replayed(stage, journal) == await _digest(stage, journal)
    await stage.assert_settles_whole(journal, receipts)


async def _replayed(stage: Stage, journal: Journal) -> str:
    """Digest that a replay reports."""
    result = await stage.replays("--project", journal.project, "--json")
    assert result.code == 0, result.stderr
    return str(result.json["digest"])


async def _digest(stage: Stage, journal: Journal) -> str:
    async with stage.owner() as owner:
        return await live_digest(owner, journal.project)


async def _archived(stage: Stage, changes: int) -> bool:
    query = "SELECT coalesce(sum(entries), 0) FROM archive_segments WHERE kind = 'events'"
    async with stage.owner() as owner:
        return bool(await owner.fetchval(query) >= changes)
