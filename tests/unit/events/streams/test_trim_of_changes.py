"""Trimming of changes: old ones that every group has acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from fakeredis import FakeAsyncRedis

from events.names import ARCHIVER, Lane, Names, Topic
from events.streams.trim import changes_needed_from, read_trimmed, trim_changes

NAMES = Names()
KEY = NAMES.stream(Topic.of_lane(Lane.LIVE))
IDS = [f"{number}-0" for number in range(1, 301)]
INDEXER = "indexer"
DAY = timedelta(days=1)


@pytest.fixture
async def redis() -> AsyncIterator[FakeAsyncRedis]:
    """Server with 300 old changes that both groups have acknowledged."""
    async with FakeAsyncRedis() as fake:
        for entry_id in IDS:
            await fake.xadd(KEY, {"event": "{}"}, id=entry_id)
        for group in (INDEXER, ARCHIVER):
            await _read(fake, group)
            await fake.xack(KEY, group, *IDS)
        yield fake


async def _read(redis: FakeAsyncRedis, group: str) -> None:
    await redis.xgroup_create(KEY, group, id="0")
    await redis.xreadgroup(group, "one", {KEY: ">"}, count=300)


async def _kept(redis: FakeAsyncRedis) -> set[str]:
    return {entry_id.decode() for entry_id, _ in await redis.xrange(KEY)}


async def test_what_everybody_has_goes(redis: FakeAsyncRedis) -> None:
    """Old changes that are indexed and archived are trimmed and counted."""
    trimmed = await trim_changes(redis, NAMES, DAY)
    assert trimmed == 300 - len(await _kept(redis)) >= 200
    assert await read_trimmed(redis, NAMES) == {(Lane.LIVE, 0): trimmed, (Lane.BULK, 0): 0}


async def test_recent_changes_stay(redis: FakeAsyncRedis) -> None:
    """Changes within the retention stay."""
    await trim_changes(redis, NAMES, timedelta(days=365 * 100))
    assert len(await _kept(redis)) == 300


@pytest.mark.parametrize("missing", [INDEXER, ARCHIVER])
async def test_nothing_goes_without_both_groups(redis: FakeAsyncRedis, missing: str) -> None:
    """Nothing is trimmed if a group is missing, for example after a failover."""
    await redis.xgroup_destroy(KEY, missing)
    assert await trim_changes(redis, NAMES, DAY) == 0


@pytest.mark.parametrize("group", [INDEXER, ARCHIVER, "somebody-else"])
async def test_what_a_group_has_in_hand_stays(redis: FakeAsyncRedis, group: str) -> None:
    """Pending entries stay, whichever group they are pending for."""
    if group in (INDEXER, ARCHIVER):
        await redis.xgroup_destroy(KEY, group)
    await _read(redis, group)
    await redis.xack(KEY, group, *IDS[:200])
    await trim_changes(redis, NAMES, DAY)
    assert set(IDS[200:]) <= await _kept(redis)


async def test_what_a_further_group_has_not_read_stays(redis: FakeAsyncRedis) -> None:
    """Entries that a further group has not read stay."""
    await redis.xgroup_create(KEY, "somebody-else", id="0")
    assert await trim_changes(redis, NAMES, DAY) == 0


async def test_a_group_at_the_end_needs_no_older_change(redis: FakeAsyncRedis) -> None:
    """A lane without entries needs no older changes; an unread entry needs everything since it."""
    assert await changes_needed_from(redis, NAMES, DAY) is None
    bulk = NAMES.stream(Topic.of_lane(Lane.BULK))
    for group in (INDEXER, ARCHIVER):
        await redis.xgroup_create(bulk, group, id="$", mkstream=True)
    needed = await changes_needed_from(redis, NAMES, DAY)
    assert needed is not None
    assert needed > 300
    await redis.xadd(bulk, {"event": "{}"}, id="5-0")
    assert await changes_needed_from(redis, NAMES, DAY) == 0
