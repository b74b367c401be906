"""Identity of a deployment: servers that don't belong together are refused before work begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from events.client.client import Client
from events.deployment import read_stamp
from events.models import DocumentChange, DocumentChanged
from events.names import Names, Topic
from processors.deployment import DeploymentWatch, adopt, compare, join, names_of
from runtime.embedded import EmbeddedPostgres
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from store.postgres.pool import Database
from tests.support.databases import Database as FreshDatabase
from tests.support.databases import fresh_database
from tests.support.running import headrace
from tests.support.waiting import eventually, patience
from tests.support.writes import opened

NAMES = Names()


@pytest.fixture
async def other(postgres_server: EmbeddedPostgres) -> AsyncIterator[FreshDatabase]:
    """Second database, of another deployment."""
    async with fresh_database(postgres_server) as database:
        yield database


def settings_of(redis_url: str, **values: Any) -> Settings:
    return Settings(redis_url=redis_url, **values)


def change(uri: str = "a.md") -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project="docs", uri=uri, content="text"))


async def lengths(redis: Redis, partitions: int = 8) -> int:
    """Number of changes in the streams of all partitions."""
    keys = [NAMES.stream(Topic.CHANGED_LIVE, partition) for partition in range(partitions)]
    return sum([await redis.xlen(key) for key in keys])


async def test_two_databases_on_one_prefix_are_refused(
    redis_url: str, redis: Redis, database: FreshDatabase, other: FreshDatabase
) -> None:
    """A second worker with another database is refused with both ids, and the first continues."""
    async with headrace(redis_url, database) as running:
        stamp = await read_stamp(redis, NAMES)
        assert stamp is not None
        with pytest.raises(ConfigurationError, match=f"{stamp.id[:12]}.*HEADRACE_STREAM_PREFIX"):
            async with headrace(redis_url, other):
                pytest.fail("it began to take changes")
        async with opened(other.worker_url) as second:
            with pytest.raises(ConfigurationError, match=stamp.id[:12]):
                await compare(redis, second, settings_of(redis_url))
        await running.change("a.md", "text")
    async with headrace(redis_url, other, stream_prefix="other"):
        assert await read_stamp(redis, Names("other")) != stamp


async def test_a_client_takes_the_partitions_from_the_deployment(
    redis_url: str, redis: Redis, database: FreshDatabase
) -> None:
    """A client uses the deployment's partitions, and refuses to work with a wrong number."""
    async with headrace(redis_url, database, partitions=4) as running:
        receipts = await running.client.publish_many([change(f"{n}.md") for n in range(16)])
        assert {receipt.token.split(":")[1] for receipt in receipts} == {"0", "1", "2", "3"}
        assert len(await running.client.wait(receipts)) == 16
        before = await lengths(redis)
        async with Client.connect(redis_url, partitions=8) as wrong:
            for call in (
                wrong.publish(change()),
                wrong.publish_many([change()]),
                wrong.ask("docs", "text"),
            ):
                with pytest.raises(ConfigurationError, match="set HEADRACE_PARTITIONS=4"):
                    await call
        assert await lengths(redis) == before


async def test_a_worker_with_other_partitions_is_refused(
    redis_url: str, redis: Redis, worker: Database
) -> None:
    """Another number of partitions is refused, also after a flush; the stored one is used."""
    await join(redis, worker, settings_of(redis_url, partitions=4))
    for partitions in (1, 8):
        wrong = settings_of(redis_url, partitions=partitions)
        with pytest.raises(
            ConfigurationError, match=f"partitions is 4, but HEADRACE_PARTITIONS is {partitions}"
        ):
            await join(redis, worker, wrong)
    await redis.flushall()
    with pytest.raises(ConfigurationError, match="partitions is 4"):
        await join(redis, worker, settings_of(redis_url, partitions=1))
    assert (await join(redis, worker, settings_of(redis_url))).partitions == 4


async def test_changes_that_no_worker_would_read_are_not_left_behind(
    redis_url: str, redis: Redis, database: FreshDatabase
) -> None:
    """Fewer partitions are refused while changes in the removed ones are not handled."""
    uris = [f"{n}.md" for n in range(16)]
    async with Client.connect(redis_url, partitions=4) as early:
        receipts = await early.publish_many([change(uri) for uri in uris])
        with pytest.raises(ConfigurationError, match=r"partition 3.*HEADRACE_PARTITIONS=4 or more"):
            async with headrace(redis_url, database, partitions=1):
                pytest.fail("it would leave three partitions unread")
        lowered = settings_of(redis_url, partitions=2)
        async with opened(database.operator_url) as operator:
            with pytest.raises(ConfigurationError, match="partition 3"):
                await adopt(redis, operator, lowered)
            async with headrace(redis_url, database, partitions=4):
                assert len(await early.wait(receipts)) == 16
                await eventually(lambda: _can_adopt(redis, operator, lowered), "all is archived")
            assert (await join(redis, operator, settings_of(redis_url))).partitions == 2


async def _can_adopt(redis: Redis, operator: Database, settings: Settings) -> bool:
    try:
        await adopt(redis, operator, settings)
    except ConfigurationError:
        return False
    return True


async def test_a_flushed_redis_is_stamped_again(
    redis_url: str, redis: Redis, worker: Database
) -> None:
    """The watch of a worker restores the stamp after a flush."""
    stamp = await join(redis, worker, settings_of(redis_url))
    stop = asyncio.Event()
    watch = DeploymentWatch(redis, names_of(stamp), stamp, interval=timedelta(milliseconds=10))
    watching = asyncio.create_task(watch.run(stop))
    await redis.flushall()

    async def is_back() -> bool:
        return await read_stamp(redis, NAMES) == stamp

    await eventually(is_back, "the stamp is back")
    stop.set()
    await watching


async def test_a_worker_ends_whose_deployment_was_changed(
    redis_url: str, redis: Redis, database: FreshDatabase, other: FreshDatabase
) -> None:
    """A worker ends if another deployment has stamped its Redis."""
    async with opened(database.worker_url) as mine, opened(other.worker_url) as theirs:
        stamp = await join(redis, mine, settings_of(redis_url))
        await redis.flushall()
        await join(redis, theirs, settings_of(redis_url))
        watch = DeploymentWatch(redis, names_of(stamp), stamp, interval=timedelta(milliseconds=10))
        with pytest.raises(ConfigurationError, match="headrace deployment --adopt"):
            await asyncio.wait_for(watch.run(asyncio.Event()), patience(10))


async def test_a_database_keeps_its_prefix_until_it_is_adopted(
    redis_url: str, redis: Redis, worker: Database
) -> None:
    """A database keeps its stream prefix until the new one is adopted."""
    await join(redis, worker, settings_of(redis_url))
    moved = settings_of(redis_url, stream_prefix="moved")
    with pytest.raises(
        ConfigurationError, match="prefix headrace, but HEADRACE_STREAM_PREFIX is moved"
    ):
        await join(redis, worker, moved)
    adopted = await adopt(redis, worker, moved)
    assert await join(redis, worker, moved) == adopted


async def test_a_copy_of_a_database_has_no_part_in_the_archive_of_the_original(
    redis_url: str, redis: Redis, worker: Database, other: FreshDatabase, tmp_path: Path
) -> None:
    """A copied database is refused until it has a new id and its own part of the archive."""
    settings = settings_of(redis_url, archive_url=str(tmp_path / "archive"))
    original = await join(redis, worker, settings)
    await redis.flushall()  # like another Redis
    async with opened(other.operator_url) as copy:
        async with copy.connection() as connection:
            await connection.execute("update deployment set id = $1", original.id)
        with pytest.raises(ConfigurationError, match="deployment --new"):
            await join(redis, copy, settings)
        renewed = await adopt(redis, copy, settings, renews=True)
        assert renewed.id != original.id
        assert await join(redis, copy, settings) == renewed
    assert {path.parent.name for path in (tmp_path / "archive").glob("*/deployment.json")} == {
        original.id,
        renewed.id,
    }
