"""Archiver after a crash, a lost lock or a storage error: no change is lost or read twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from processors.archiving.archiver import Archiver
from processors.archiving.consumer import LogGroup
from runtime.errors import Unavailable
from store.archive.files import Files
from store.archive.writer import Appender
from store.postgres.locks import archiver_lock
from store.postgres.pool import Database
from tests.support.archivers import NAMES, STREAM, archive_all, archiver, pending, publish
from tests.support.archives import ArchiveAt
from tests.support.databases import Database as FreshDatabase
from tests.support.waiting import eventually

URIS = [f"{number}.md" for number in range(250)]


class Killed(Exception):
    """Simulated end of the process."""


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def _die(*_: Any) -> None:
    raise Killed


async def _uris(kept: ArchiveAt, project: str = "alpha") -> list[str]:
    """Uris of the archived changes, each log position once."""
    places = {change.log_position: change for change in await kept.changes(project=project)}
    return sorted(change.event.data.uri for change in places.values())


async def test_death_between_files_and_index_loses_nothing(
    redis: Redis, worker: Database, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash before the index update, the successor archives the pending changes."""
    await publish(redis, URIS)
    group, first = archiver(redis, worker, kept.archive)
    await group.begin()
    with monkeypatch.context() as patch:
        patch.setattr(Appender, "_enter", _die)
        with pytest.raises(Killed):
            await first.archive_batch()
    assert kept.files("events")
    assert await _uris(kept) == []

    await archive_all(redis, worker, kept.archive)

    assert await _uris(kept) == sorted(URIS)
    assert await pending(redis) == 0


async def test_death_between_index_and_acknowledgement_doubles_nothing(
    redis: Redis, worker: Database, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash before the acknowledgement, changes are archived again and read once."""
    await publish(redis, URIS)
    group, first = archiver(redis, worker, kept.archive)
    await group.begin()
    with monkeypatch.context() as patch:
        patch.setattr(LogGroup, "acknowledge", _die)
        with pytest.raises(Killed):
            await first.archive_batch()
    assert await pending(redis) == len(URIS)

    await archive_all(redis, worker, kept.archive)

    assert await _uris(kept) == sorted(URIS)
    assert await pending(redis) == 0


async def test_a_project_that_fails_holds_up_no_other(
    redis: Redis, worker: Database, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project whose archive fails does not delay others, and is archived later."""
    await publish(redis, ["a.md"], project="alpha")
    await publish(redis, ["b.md"], project="beta")
    folder = f"/{await kept.projects.ensure('alpha')}/"
    write = Files.write

    def refuse_alpha(files: Files, path: str, data: bytes) -> None:
        if folder in path or "/shared/" in path:
            raise Unavailable("no space is left")
        write(files, path, data)

    group, first = archiver(redis, worker, kept.archive)
    await group.begin()
    with monkeypatch.context() as patch:
        patch.setattr(Files, "write", refuse_alpha)
        with pytest.raises(Unavailable):
            await first.archive_batch()
    assert await _uris(kept, "beta") == ["b.md"]
    assert await pending(redis) == 1

    await archive_all(redis, worker, kept.archive)
    assert await _uris(kept, "alpha") == ["a.md"]


async def test_entries_that_were_trimmed_by_hand_hold_nothing_up(
    redis: Redis, worker: Database, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that were trimmed before they were archived do not stay pending."""
    await publish(redis, ["gone.md"])
    group, first = archiver(redis, worker, kept.archive)
    await group.begin()
    with monkeypatch.context() as patch:
        patch.setattr(kept.archive, "append", _die)
        with pytest.raises(Killed):
            await first.archive_batch()
    await redis.xtrim(STREAM, maxlen=0, approximate=False)
    await publish(redis, ["there.md"])

    await archive_all(redis, worker, kept.archive)

    assert await _uris(kept) == ["there.md"]
    assert await pending(redis) == 0


async def test_a_group_that_is_lost_while_reading_begins_anew(
    redis: Redis, worker: Database, kept: ArchiveAt
) -> None:
    """After a flush the archiver reads the new stream from its start."""
    group, one = archiver(redis, worker, kept.archive)
    await group.begin()
    await publish(redis, ["before.md"])
    await one.archive_batch()
    await redis.flushall()
    await publish(redis, ["after.md"])
    await one.archive_batch()
    assert await _uris(kept) == ["after.md", "before.md"]
    assert await pending(redis) == 0


async def test_only_one_archives_and_another_takes_over(
    redis: Redis, worker: Database, kept: ArchiveAt, database: FreshDatabase
) -> None:
    """Only one archiver is active; one takes over after the holder's connection is cut."""
    stop = asyncio.Event()
    both = [archiver(redis, worker, kept.archive)[1] for _ in range(2)]
    tasks = [asyncio.create_task(one.run(stop)) for one in both]
    try:
        await eventually(lambda: _active(both) == 1, "one of them is active")
        async with archiver_lock(worker, NAMES.prefix) as lock:
            assert lock is None
        await _cut_holder(database)
        await publish(redis, ["a.md"])
        await eventually(lambda: _archived(kept), "the change is archived")
        await eventually(lambda: _active(both) == 1, "the former holder has noticed")
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def _active(archivers: list[Archiver]) -> int:
    return sum(one.is_active for one in archivers)


async def _archived(kept: ArchiveAt) -> bool:
    return await _uris(kept) == ["a.md"]


async def _cut_holder(database: FreshDatabase) -> None:
    connection = await asyncpg.connect(database.owner_url)
    cut = await connection.fetch(
        "select pg_terminate_backend(pid) from pg_locks "
        "where locktype = 'advisory' and objsubid = 2 and database = "
        "(select oid from pg_database where datname = current_database())"
    )
    await connection.close()
    assert len(cut) == 1


async def test_a_storage_that_fails_leaves_changes_pending(
    redis: Redis, worker: Database, kept: ArchiveAt, tmp_path: Path
) -> None:
    """Nothing is acknowledged while storage fails, and archiving continues afterwards."""
    kept.directory.touch()  # a file where the directory should be
    await publish(redis, ["a.md"])
    stop = asyncio.Event()
    task = asyncio.create_task(archiver(redis, worker, kept.archive)[1].run(stop))
    try:
        await eventually(lambda: _has_pending(redis), "the change is pending")
        assert await _uris(kept) == []
        kept.directory.unlink()
        await eventually(lambda: _archived(kept), "the change is archived", timeout=20)
        await eventually(lambda: _nothing_pending(redis), "it is acknowledged")
    finally:
        stop.set()
        await task


async def _has_pending(redis: Redis) -> bool:
    return bool(await redis.exists(STREAM)) and await _count(redis) == 1


async def _nothing_pending(redis: Redis) -> bool:
    return await _count(redis) == 0


async def _count(redis: Redis) -> int:
    groups = await redis.xinfo_groups(STREAM)
    return await pending(redis) if groups else -1
