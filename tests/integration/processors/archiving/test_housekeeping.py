"""Housekeeping of the archiver: contents in Postgres, small files, deleted projects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.models import ContentReference, DocumentChange, DocumentChanged
from events.names import GROUPS, Lane, Topic
from processors.archiving.housekeeping import Housekeeping
from processors.content import KeptContents
from runtime.errors import UnsupportedContent
from runtime.settings import RetentionSettings
from store.archive.compaction.compactor import Compacted
from store.archive.shared_files import parts_of
from store.postgres.pool import Database
from store.purge.expiry import Expiry
from store.purge.projects import DeletedProjects
from store.search.vector_indexes import VectorIndexes
from store.store import Store
from tests.support.archivers import NAMES, archive_all, publish
from tests.support.archives import ArchiveAt
from tests.support.databases import Database as FreshDatabase
from tests.support.waiting import eventually
from tests.support.writes import document_write, opened

CONTENT = "a long text " * 2_000


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def reference(
    redis: Redis, worker: Database, kept: ArchiveAt, store: Store
) -> ContentReference:
    """Content by reference that is archived and indexed."""
    reference = await store.put("alpha", CONTENT)
    change = DocumentChange(project="alpha", uri="a.md", content_ref=reference)
    await Publisher(redis, NAMES).publish(DocumentChanged(data=change))
    await archive_all(redis, worker, kept.archive)
    for lane in Lane:
        topic = Topic.of_lane(lane)
        await redis.xgroup_create(NAMES.stream(topic), GROUPS[topic], id="$", mkstream=True)
    return reference


def _upkeep(redis: Redis, worker: Database, kept: ArchiveAt) -> Housekeeping:
    return Housekeeping(
        redis,
        NAMES,
        worker,
        kept.archive,
        Expiry(worker, VectorIndexes(worker, None, 10_000), RetentionSettings()),
        stream_retention=timedelta(microseconds=1),
        archive_retention=timedelta(days=30),
        compaction_interval=timedelta(days=1),
    )


async def _age(database: FreshDatabase) -> None:
    await database.as_owner("update contents set created_at = now() - interval '2 days'")


async def _kept(database: FreshDatabase) -> int:
    return int(await database.as_owner("select count(*) from contents"))


async def test_archived_contents_leave_postgres_and_are_still_found(
    redis: Redis,
    worker: Database,
    kept: ArchiveAt,
    store: Store,
    database: FreshDatabase,
    reference: ContentReference,
) -> None:
    """Old archived contents are removed from Postgres and fetched from the archive."""
    await _age(database)
    await _upkeep(redis, worker, kept).release()
    assert await _kept(database) == 0
    contents = KeptContents(store, kept.archive)
    assert await contents.fetch("alpha", reference.sha256) == CONTENT.encode()
    with pytest.raises(UnsupportedContent):
        await contents.fetch("alpha", "0" * 64)


async def test_young_contents_stay(
    redis: Redis,
    worker: Database,
    kept: ArchiveAt,
    database: FreshDatabase,
    reference: ContentReference,
) -> None:
    """New contents stay, because an event in transit may refer to them."""
    await _upkeep(redis, worker, kept).release()
    assert await _kept(database) == 1


async def test_contents_that_are_put_again_count_as_young(
    redis: Redis,
    worker: Database,
    kept: ArchiveAt,
    store: Store,
    database: FreshDatabase,
    reference: ContentReference,
) -> None:
    """Contents that are stored again count as new."""
    await _age(database)
    assert await store.put("alpha", CONTENT) == reference
    await _upkeep(redis, worker, kept).release()
    assert await _kept(database) == 1


async def test_contents_stay_while_a_change_waits(
    redis: Redis,
    worker: Database,
    kept: ArchiveAt,
    database: FreshDatabase,
    reference: ContentReference,
) -> None:
    """Contents stay while an older change is not indexed."""
    await _age(database)
    topic = Topic.of_lane(Lane.BULK)
    await redis.xadd(NAMES.stream(topic), {"event": "{}"}, id="1-0")
    await _upkeep(redis, worker, kept).release()
    assert await _kept(database) == 1


async def test_contents_stay_that_are_not_archived(
    redis: Redis, worker: Database, kept: ArchiveAt, store: Store, database: FreshDatabase
) -> None:
    """Contents stay while Postgres has the only copy of them."""
    await store.put("alpha", CONTENT)
    await archive_all(redis, worker, kept.archive)
    for lane in Lane:
        topic = Topic.of_lane(lane)
        await redis.xgroup_create(NAMES.stream(topic), GROUPS[topic], id="$", mkstream=True)
    await _age(database)
    await _upkeep(redis, worker, kept).release()
    assert await _kept(database) == 1


async def test_many_small_files_become_one(redis: Redis, worker: Database, kept: ArchiveAt) -> None:
    """Small files are merged when there are enough of them."""
    housekeeping = _upkeep(redis, worker, kept)
    for number in range(5):
        await publish(redis, [f"{number}.md"])
        await archive_all(redis, worker, kept.archive)
    await housekeeping.merge(many=11)
    assert await _files(kept) == 10
    await housekeeping.merge(many=10)
    assert await _files(kept) == 2
    await housekeeping.merge(many=2)
    assert await _files(kept) == 2
    assert len(await kept.changes()) == 5


async def test_a_project_that_fails_keeps_no_other_from_its_turn(
    redis: Redis, worker: Database, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archives of the others are compacted before the failure is raised."""
    for project in ("alpha", "beta"):
        for number in range(2):
            change = DocumentChange(project=project, uri=f"{number}.md", content=CONTENT)
            await Publisher(redis, NAMES).publish(DocumentChanged(data=change))
            await archive_all(redis, worker, kept.archive)
    compact = kept.archive.compact

    async def fail_first(project: str, older_than: datetime) -> Compacted:
        done.append(project)
        if len(done) == 1:
            raise ValueError("a defect")
        return await compact(project, older_than)

    done: list[str] = []
    monkeypatch.setattr(kept.archive, "compact", fail_first)
    with pytest.raises(ExceptionGroup):
        await _upkeep(redis, worker, kept).merge(many=3)
    assert sorted(done) == ["alpha", "beta"]
    assert await _files(kept, done[0]) > await _files(kept, done[1])


async def _files(kept: ArchiveAt, project: str = "alpha") -> int:
    statistics = await kept.archive.statistics(project)
    assert statistics is not None
    return statistics.files


async def test_outcomes_stay_while_a_stream_has_their_changes(
    redis: Redis, worker: Database, kept: ArchiveAt, store: Store, database: FreshDatabase
) -> None:
    """Entries of the ledger expire only below the oldest entry of the streams."""
    await store.apply([document_write(name, 10 + n, ["x"]) for n, name in enumerate("abcd")])
    await database.as_owner("update ledger set handled_at = now() - interval '100 days'")
    stream = NAMES.stream(Topic.of_lane(Lane.BULK))
    await redis.xadd(stream, {"event": "{}"}, id="1-0")
    await _upkeep(redis, worker, kept).expire()
    assert await database.as_owner("select count(*) from ledger") == 4
    await redis.delete(stream)
    await _upkeep(redis, worker, kept).expire()
    assert await database.as_owner("select count(*) from ledger") == 2


async def test_shared_files_that_no_project_needs_are_removed(
    redis: Redis,
    worker: Database,
    kept: ArchiveAt,
    database: FreshDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once every project has files of its own, the archiver removes the file that they shared."""
    for project in ("alpha", "beta"):
        await publish(redis, ["a.md"], project=project)
    await archive_all(redis, worker, kept.archive)
    [shared] = kept.directory.glob("*/shared/*.zst")
    for project in ("alpha", "beta", "alpha", "beta"):
        await kept.archive.compact(project, datetime.now(UTC), grace=timedelta())
    await database.as_owner(
        "update archive_shared_files set entered_at = now() - interval '2 hours'"
    )
    housekeeping = _upkeep(redis, worker, kept)
    monkeypatch.setattr("processors.archiving.housekeeping.monotonic", lambda: monotonic() + 7_200)
    stop = asyncio.Event()
    running = asyncio.create_task(housekeeping.run(stop, lambda: True))
    await eventually(lambda: _is_gone(shared), "the shared file is removed")
    stop.set()
    await running
    for project in ("alpha", "beta"):
        assert len(await kept.changes(project=project)) == 1


async def _is_gone(path: Path) -> bool:
    return not await asyncio.to_thread(path.exists)


async def test_the_archive_of_a_deleted_project_goes_after_its_retention(
    redis: Redis, worker: Database, kept: ArchiveAt, database: FreshDatabase
) -> None:
    """A deleted project's archive is removed after the retention; other projects stay."""
    for project in ("alpha", "beta"):
        change = DocumentChange(project=project, uri="a.md", content=CONTENT)
        await Publisher(redis, NAMES).publish(DocumentChanged(data=change))
    await archive_all(redis, worker, kept.archive)
    operator = await Database.open(database.operator_url)
    project_id = await kept.projects.find("alpha")
    assert project_id is not None
    await DeletedProjects(operator).retire(project_id)
    await operator.close()
    housekeeping = _upkeep(redis, worker, kept)
    segments = (
        "select count(*) from archive_segments s join projects p on p.id = s.project_id "
        "where p.deleted_at is not null"
    )

    await database.as_owner(
        "update projects set deleted_at = now() - interval '29 days' where deleted_at is not null",
    )
    await housekeeping.remove_deleted()
    assert await database.as_owner(segments) == 2

    await database.as_owner(
        "update projects set deleted_at = now() - interval '31 days' where deleted_at is not null",
    )
    async with opened(database.worker_url) as archiver:
        await _upkeep(redis, archiver, kept.as_of(archiver)).remove_deleted()
    assert await database.as_owner(segments) == 0
    [shared] = kept.directory.glob("*/shared/*.zst")
    assert {part.project for part in parts_of(shared.read_bytes())} == {"beta"}
    assert len(await kept.changes(project="beta")) == 1
    assert await database.as_owner("select array_agg(name::text) from projects") == ["beta"]
