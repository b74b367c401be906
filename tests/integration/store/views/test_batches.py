"""Progress of batches, counted from the ledger as an answerer reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from events.client.operator_client import OperatorClient
from events.models import DocumentChange, DocumentChanged, Problem
from events.names import Lane, LogPosition
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import NotFound
from store.documents.ledger import add_costs
from store.generations.catalog import Projects, Recipe
from store.postgres.pool import Database
from store.store import Store
from store.views.batches import Batches, BatchProgress, skipped_files
from tests.support.databases import Database as FreshDatabase
from tests.support.processes import WorkerProcess
from tests.support.waiting import eventually
from tests.support.writes import RECIPE, document_write, opened

PROJECT = "alpha"


@pytest.fixture
async def batches(database: FreshDatabase) -> AsyncIterator[Batches]:
    """Batches as an answerer reads them."""
    url = database.worker_url.replace("headrace_worker@", "headrace_answerer@")
    async with opened(url) as answerer:
        yield Batches(answerer, Projects(answerer))


async def test_progress_is_counted_from_the_ledger(batches: Batches, store: Store) -> None:
    """Changes count by their last outcome, in their batch and project only."""
    await store.batches.begin(PROJECT, "import")
    await store.batches.update(PROJECT, "import", published=5, duplicates=2)
    await store.apply(
        [
            document_write("a", 10, ["x", "y"], batch="import", tokens_embedded=7, cost_usd=0.5),
            document_write("b", 20, ["newer"]),
            document_write("b", 11, ["older"], batch="import"),
            document_write("c", 12, ["z"], batch="other"),
            document_write("d", 13, ["z"], batch="import", project="beta"),
        ]
    )
    problem = Problem(type="LimitExceeded", detail="too long")
    for position, agent in ((14, ""), (15, "ann")):
        await store.record_rejected(
            project=PROJECT,
            partition=0,
            position=position,
            event_id=f"e-{position}",
            problem=problem,
            batch="import",
            agent=agent,
            uri=f"uri-{position}",
        )
    progress = await batches.progress(PROJECT, "import")
    outcomes = (progress.indexed, progress.superseded, progress.duplicate, progress.rejected)
    assert outcomes == (1, 1, 2, 2)
    assert (progress.published, progress.waiting) == (5, 1)
    assert (progress.chunks_added, progress.tokens_embedded, progress.cost_usd) == (2, 7, 0.5)
    assert progress.per_s > 0
    assert progress.seconds_left is not None
    (rejected,) = await batches.rejected(PROJECT, "import")
    assert (rejected.uri, rejected.event_id, rejected.reason) == ("uri-14", "e-14", "too long")
    newest, oldest = await batches.rejected(PROJECT, "import", agent="ann")
    assert (newest.uri, oldest.uri) == ("uri-15", "uri-14")
    after = await batches.rejected(PROJECT, "import", agent="ann", after=newest.token)
    assert after == [oldest]
    await store.apply([document_write("uri-14", 14, ["redriven"], batch="import")])
    progress = await batches.progress(PROJECT, "import")
    assert (progress.indexed, progress.rejected) == (2, 1)


async def test_a_batch_need_not_be_reported(batches: Batches, store: Store) -> None:
    """The attribute of the events is enough; a batch without any event does not exist."""
    await store.apply([document_write("a", 10, ["x"], batch="import")])
    progress = await batches.progress(PROJECT, "import")
    assert (progress.published, progress.indexed, progress.waiting) == (1, 1, 0)
    assert (progress.began_at, progress.seconds_left) == (None, None)
    with pytest.raises(NotFound, match="no batch 'other'"):
        await batches.progress(PROJECT, "other")


async def test_published_changes_wait_until_they_are_handled(
    batches: Batches, store: Store, database: FreshDatabase
) -> None:
    """A gateway records each change once, however often and in how many calls it is named."""
    tokens = [LogPosition(position, 0).token for position in (10, 11, 12)]

    async def counts() -> tuple[int, int, int]:
        progress = await batches.progress(PROJECT, "import")
        return progress.published, progress.indexed, progress.waiting

    url = database.worker_url.replace("headrace_worker@", "headrace_gateway@")
    async with opened(url) as gateway:
        published = Batches(gateway, Projects(gateway, lambda: RECIPE))
        for named in (tokens[:2], tokens[:2], tokens[1:]):
            await published.add_changes(PROJECT, "import", named, started_by="API key 1")
    assert await counts() == (3, 0, 3)
    began_at = (await batches.progress(PROJECT, "import")).began_at
    assert began_at is not None
    await store.apply([document_write("a", 10, ["x"], batch="import")])
    assert await counts() == (3, 1, 2)
    await store.apply([document_write("b", 11, ["x"], batch="other")])
    assert await counts() == (2, 1, 1)
    assert await store.batches.forget_handled_changes(PROJECT) == 2
    assert await store.batches.forget_handled_changes(PROJECT) == 0
    assert await counts() == (2, 1, 1)
    await store.apply([document_write("c", 12, ["x"], batch="import")])
    assert await counts() == (2, 2, 0)


async def test_costs_of_vectors_are_added_to_their_batch(
    batches: Batches, store: Store, worker: Database
) -> None:
    """Each call adds once to each batch; changes without a batch and replays add nothing."""
    await store.apply(
        [
            document_write("a", 10, ["x"], batch="import", tokens_embedded=7, cost_usd=0.5),
            document_write("b", 20, ["y"], batch="import"),
            document_write("c", 30, ["z"], batch="other"),
            document_write("d", 40, ["w"]),
        ]
    )
    live = await store.live(PROJECT)
    project_id = await Projects(worker).find(PROJECT)
    assert live is not None
    assert project_id is not None
    costs = {LogPosition(position, 0): (position, position / 8) for position in (10, 20, 30, 40)}
    async with worker.scope(project_id) as connection:
        for generation_id in (live.id, live.id, live.id + 1):
            await add_costs(connection, project_id, generation_id, costs)
    imported = await batches.progress(PROJECT, "import")
    other = await batches.progress(PROJECT, "other")
    assert (imported.tokens_embedded, imported.cost_usd) == (7 + 2 * 30, 0.5 + 2 * 30 / 8)
    assert (other.tokens_embedded, other.cost_usd) == (2 * 30, 2 * 30 / 8)
    assert (imported.chunks_added, other.chunks_added) == (2, 1)


async def test_skipped_files_are_named_up_to_a_number() -> None:
    """Each reason has its number of files, and the names of the first hundred."""
    reasons = {f"{number:03}.png": "binary" for number in range(150)} | {"a": "empty"}
    binary, empty = skipped_files(reasons)
    assert (binary.reason, binary.count, len(binary.files)) == ("binary", 150, 100)
    assert (empty.count, empty.files) == (1, ("a",))


async def test_progress_survives_the_kill_of_a_worker(
    batches: Batches, worker: Database, redis_url: str, database: FreshDatabase
) -> None:
    """A worker is killed while it indexes a batch; another completes it, and each counts once."""
    count = 60
    store = Store(worker, Recipe(HASHING_MODEL))
    await store.batches.begin(PROJECT, "import")
    changes = [
        DocumentChanged(
            data=DocumentChange(
                project=PROJECT, uri=f"{number}.txt", content=f"Text number {number}."
            ),
            batch="import",
        )
        for number in range(count)
    ]

    async def progress() -> BatchProgress:
        return await batches.progress(PROJECT, "import")

    async def has_some() -> bool:
        return (await progress()).indexed > 0

    async def has_all() -> bool:
        return (await progress()).tokens_embedded > 0 and not (await progress()).waiting

    environment = {"HEADRACE_BATCH_DOCUMENTS": "8", "HEADRACE_LEASE": "PT2S"}
    async with OperatorClient.connect(redis_url) as client:
        async with WorkerProcess(redis_url, database, environment) as killed:
            receipts = await client.publish_many(changes, Lane.BULK)
            await store.batches.update(PROJECT, "import", published=len(receipts))
            await eventually(has_some, "the first changes are indexed", timeout=60)
            killed.kill()
        async with WorkerProcess(redis_url, database, environment):
            await eventually(has_all, "all changes are indexed", timeout=90)
            await client.wait(receipts, vectors=True)
    complete = await progress()
    assert (complete.published, complete.indexed, complete.rejected) == (count, count, 0)
    assert complete.chunks_added == count
