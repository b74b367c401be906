"""Purge of documents in archive, tables and streams; whole purges are in tests/acceptance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from events.names import ARCHIVER, DocumentKey, Lane, LogPosition, Names, Topic
from events.streams.purge import PurgeTargets, StreamPurge
from store.archive import Archive
from store.postgres.pool import Database
from store.purge.rows import DeletedRows
from tests.support.archives import ArchiveAt
from tests.support.changes import at, logged, sha256_of
from tests.support.databases import Database as Fresh
from tests.support.searching import Index, unit_vectors

NAMES = Names()
LIVE = NAMES.stream(Topic.CHANGED_LIVE)
DEAD = NAMES.dead(Topic.CHANGED_LIVE)
NO_PATIENCE = timedelta()
WORD = "qvexilmorpatwug"


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    yield Index.of(opened)
    await opened.close()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Any]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def test_archive_keeps_what_others_refer_to(archive: Archive, kept: ArchiveAt) -> None:
    """A purge keeps contents that other documents use and removes the rest."""
    await archive.append("alpha", [logged("a", 1, "shared"), logged("b", 2, "own")])
    await archive.append("alpha", [logged("b", 3, "shared"), logged("b", 4, title=WORD)])
    project_id = await kept.projects.find("alpha")
    assert project_id is not None
    done = await archive.purge("alpha", project_id, {DocumentKey("", "b"): LogPosition(at(9), 0)})
    assert done is not None
    assert (done.changes, done.contents, done.damaged) == (3, 1, [])
    assert await kept.positions() == [at(1), at(2), at(3), at(4)]
    assert [change.event.data.change for change in await kept.changes()] == [
        "upsert",
        "delete",
        "delete",
        "delete",
    ]
    wanted = [sha256_of("shared"), sha256_of("own")]
    assert await archive.contents("alpha", wanted) == {wanted[0]: b"shared"}
    known = await archive.check("alpha", grace=NO_PATIENCE)
    assert not known.damaged
    assert not known.orphans


async def test_words_and_vectors_of_others_stay(index: Index) -> None:
    """A purge removes words and vectors of deleted documents and keeps the answers for others."""
    vectors = unit_vectors(7, 2, 8)
    await index.write("gone", f"walrus {WORD}", vectors=vectors[:1])
    await index.write("stays", "walrus heron", vectors=vectors[1:])
    await index.write("gone")
    live = await index.live()
    deleted_rows = DeletedRows(index.database, live.project_id)
    before = await index.candidates("walrsu")
    purged = await deleted_rows.purge_words(live)
    assert (purged.segments, purged.words) == (1, 2), "the uri is a word, too"
    assert await deleted_rows.purge_vectors([live]) == 1
    after = await index.candidates("walrsu")
    assert [chunk for chunk, _ in after.keyword] == [chunk for chunk, _ in before.keyword]
    assert after.corrections == before.corrections == {"walrsu": "walrus"}
    assert not (await index.candidates(WORD[:-1])).corrections
    assert (await deleted_rows.purge_words(live)).words == 0
    assert await deleted_rows.purge_vectors([live]) == 0


async def test_memory_is_free_once_the_last_group_has_what_lies_beside(redis: Any) -> None:
    """A purged entry leaves Redis' memory once every group has read its neighbours."""
    for group in ("indexer", ARCHIVER, "another"):
        await redis.xgroup_create(LIVE, group, mkstream=True)
    mine = await redis.xadd(LIVE, {"event": logged("b", 1, WORD).event.to_bytes()})
    other = await redis.xadd(LIVE, {"event": logged("a", 2, "other").event.to_bytes()})
    for event in (logged("b", 1, WORD), logged("a", 2, "other")):
        await redis.xadd(DEAD, {"event": event.event.to_bytes(), "detail": "why"})
    for group in ("indexer", ARCHIVER):
        await redis.xreadgroup(group, "one", {LIVE: ">"})
        await redis.xack(LIVE, group, mine, other)
    position = LogPosition.of_entry(Lane.LIVE, 0, other.decode())
    targets = PurgeTargets("alpha", {DocumentKey("", "b"): LogPosition(position.position, 0)})
    streams = StreamPurge(redis, NAMES)

    done = await streams.purge(targets, NO_PATIENCE)
    assert (done.changes, done.letters, done.crowded) == (1, 1, [LIVE])
    assert [entry_id for entry_id, _ in await redis.xrange(LIVE)] == [other]
    assert WORD.encode() in (await redis.dump(LIVE) or b"")
    assert WORD.encode() not in (await redis.dump(DEAD) or b"")
    assert len(await redis.xrange(DEAD)) == 1

    await redis.xreadgroup("another", "one", {LIVE: ">"})
    await redis.xack(LIVE, "another", other)
    assert (await streams.purge(targets, NO_PATIENCE)).crowded == []
    assert WORD.encode() not in (await redis.dump(LIVE) or b"")
    assert await streams.count(targets) == 0


async def test_a_change_with_an_id_that_no_clock_made_is_purged(redis: Any) -> None:
    """Its worker rejects it, so it has no position, but its text is that of the document."""
    body = logged("b", 1, WORD).event.to_bytes()
    await redis.xadd(LIVE, {"event": body}, id="9999999999999999-1")
    targets = PurgeTargets("alpha", {DocumentKey("", "b"): LogPosition(1, 0)})
    done = await StreamPurge(redis, NAMES).purge(targets, NO_PATIENCE)
    assert done.changes == 1
    assert await redis.xrange(LIVE) == []
