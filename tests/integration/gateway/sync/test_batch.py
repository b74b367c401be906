"""Batches of syncs."""

from __future__ import annotations

from pathlib import Path

from redis.asyncio import Redis

from events.client.operator_client import OperatorClient
from events.models import DocumentChanged
from events.names import Names, Topic
from events.streams.entries import entries_of
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport
from gateway.sync.sync import Until, sync_source
from processors.embedders.hash_embedder import HASHING_MODEL
from sources import SizeLimits, open_source
from store.generations.catalog import Recipe
from store.postgres.pool import Database
from store.store import Store
from store.views.listing import Listing, SourceRow
from tests.support.databases import Database as FreshDatabase
from tests.support.repositories import write_files
from tests.support.running import headrace

PROJECT = "docs"


async def test_a_sync_that_publishes_has_a_batch(
    redis: Redis, redis_url: str, worker: Database, database: FreshDatabase, tmp_path: Path
) -> None:
    """The batch has found and skipped files, and all changes; a sync without changes renews it."""
    root = tmp_path / "root"
    write_files(root, {"a.md": "Alpha.", "b.md": "Beta.", "empty.md": "", ".env": "KEY=x"})
    store = Store(worker, Recipe(HASHING_MODEL))

    async def sync(until: Until) -> SyncReport:
        async with OperatorClient.connect(redis_url, content_store=store) as client:
            return await sync_source(
                open_source(root),
                Destination(PROJECT),
                client,
                store,
                sizes=SizeLimits(2**20, 2**20),
                until=until,
                show=lambda *_, **__: None,
            )

    async def source() -> SourceRow:
        (row,) = await Listing(worker).sources(PROJECT)
        return row

    first = await sync(Until.PUBLISHED)
    assert first.batch is not None
    progress = await store.batches.progress(PROJECT, first.batch)
    assert (progress.published, progress.waiting, progress.indexed) == (2, 2, 0)
    reply = await redis.xrange(Names().stream(Topic.of_lane(first.lane)))
    events = [DocumentChanged.from_bytes(entry.fields[b"event"]) for entry in entries_of(reply)]
    assert [event.batch for event in events] == [first.batch] * 2
    async with headrace(redis_url, database):
        again = await sync(Until.VECTORS)
    assert again.batch == first.batch, "nothing was published"
    progress = await store.batches.progress(PROJECT, first.batch)
    assert (progress.published, progress.waiting, progress.indexed) == (2, 0, 2)
    assert (progress.chunks_added, progress.ended_at is not None) == (2, True)
    assert progress.tokens_embedded > 0
    row = await source()
    assert row.batch is not None
    assert (row.batch.id, row.documents, row.found) == (first.batch, 2, 4)
    skipped = {reason.reason: reason.files for reason in row.skipped}
    assert skipped == {"empty": ("empty.md",), "secret": (".env",)}
    (root / "a.md").write_text("Alpha again.")
    third = await sync(Until.PUBLISHED)
    assert third.batch not in {None, first.batch}
    assert (await source()).batch is not None
    progress = await store.batches.progress(PROJECT, third.batch or "")
    assert (progress.published, progress.waiting) == (1, 1)
