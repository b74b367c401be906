"""Progress of groups: what is delivered, pending and handled, and groups that do not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fakeredis import FakeAsyncRedis
from redis.exceptions import ResponseError

from events.streams.groups import Progress, read_groups, read_pending, read_progress

KEY, GROUP = "stream", "group"
IDS = ["1-0", "2-0", "3-0", "4-0"]


@pytest.fixture
async def redis() -> AsyncIterator[FakeAsyncRedis]:
    """A stream of four entries, and a group to which three of them are delivered."""
    async with FakeAsyncRedis() as fake:
        await fake.xgroup_create(KEY, GROUP, id="0", mkstream=True)
        for entry_id in IDS:
            await fake.xadd(KEY, {"event": "{}"}, id=entry_id)
        await fake.xreadgroup(GROUP, "worker", {KEY: ">"}, count=3)
        yield fake


async def _progress(redis: FakeAsyncRedis, key: str = KEY, group: str = GROUP) -> Progress:
    (progress,) = await read_progress(redis, [(key, group)])
    return progress


async def test_everything_before_the_oldest_pending_entry_is_handled(
    redis: FakeAsyncRedis,
) -> None:
    """An acknowledgement behind an entry that is pending does not count yet."""
    await redis.xack(KEY, GROUP, "1-0", "3-0")
    progress = await _progress(redis)
    assert (progress.delivered, progress.pending, progress.oldest_pending) == ("3-0", 1, "2-0")
    assert "1-0" <= progress.handled < "2-0"


async def test_without_pending_entries_all_delivered_ones_are_handled(
    redis: FakeAsyncRedis,
) -> None:
    """The entry that nobody has read is not."""
    await redis.xack(KEY, GROUP, *IDS)
    progress = await _progress(redis)
    assert (progress.pending, progress.oldest_pending, progress.handled) == (0, None, "3-0")


@pytest.mark.parametrize(("key", "group"), [("nothing", GROUP), (KEY, "other")])
async def test_a_group_that_does_not_exist_has_read_nothing(
    redis: FakeAsyncRedis, key: str, group: str
) -> None:
    """A worker has not created it yet, or Redis was emptied."""
    progress = await _progress(redis, key, group)
    assert (progress.exists, progress.delivered, progress.handled) == (False, "0-0", "0-0")


async def test_another_error_is_not_mistaken_for_a_missing_group(redis: FakeAsyncRedis) -> None:
    """A key of another type is an error, and so is a missing permission."""
    await redis.set("text", "value")
    with pytest.raises(ResponseError):
        await _progress(redis, "text")
    with pytest.raises(ResponseError):
        await read_groups(redis, "text")


async def test_every_group_of_a_stream_is_read(redis: FakeAsyncRedis) -> None:
    """Each with its own progress; a stream that does not exist has none."""
    await redis.xgroup_create(KEY, "other", id="2-0")
    groups = await read_groups(redis, KEY)
    assert groups[GROUP] == await _progress(redis)
    assert {name: group.delivered for name, group in groups.items()} == {
        GROUP: "3-0",
        "other": "2-0",
    }
    assert await read_groups(redis, "nothing") == {}


async def test_pending_entries_are_read_in_pages(
    redis: FakeAsyncRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one, whatever the size of a page."""
    for entries_per_page in (1, 2, 3, 10):
        monkeypatch.setattr("events.streams.groups._PAGE", entries_per_page)
        assert list(await read_pending(redis, KEY, GROUP)) == IDS[:3]
