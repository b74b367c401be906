"""Two stages of indexing: keywords at once, vectors once the model has made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from redis.asyncio import Redis

from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged, DocumentEmbedded, DocumentIndexed
from events.names import Lane, LogPosition, Names
from events.streams.backlog import read_backlog
from processors.answering.unrelated import UNRELATED_QUESTIONS
from processors.embedding.requests import VectorRequests
from store.documents.pending import Counts, PendingVectors
from store.generations.catalog import Projects
from store.postgres.pool import Database as WorkerDatabase
from store.store import Store
from tests.support.databases import Database
from tests.support.model_server import ModelServer, running_server, status, unless
from tests.support.replays import tools
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.waiting import eventually
from tests.support.writes import RECIPE

MODEL = "openai/test-model"
FILES = 500
REFUSED = "the model refuses this"
_MEASURING = frozenset({"width", *UNRELATED_QUESTIONS})


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with running_server() as running:
        yield running


def worker_of(
    redis_url: str, database: Database, server: ModelServer, **settings: Any
) -> AbstractAsyncContextManager[Headrace]:
    """Worker with the scripted server as its model."""
    remote = {
        "model_api_key": server.key,
        "model_base_url": server.base_url,
        "model_requests": {"failures": 3},
    }
    return headrace(redis_url, database, **{"model": MODEL, **remote, **settings})


def change(uri: str, content: str) -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project="docs", uri=uri, content=content))


async def publish(worker: Headrace, *changes: DocumentChanged) -> list[Receipt]:
    return await worker.client.publish_many(changes, Lane.BULK)


async def counts(worker: WorkerDatabase) -> Counts:
    return await PendingVectors(worker, Projects(worker)).counts("docs")


def embedded(server: ModelServer) -> Counter[str]:
    """Number of embeddings by text, without the texts that workers measure the model by."""
    texts = (text for request in server.requests for text in request)
    return Counter(text for text in texts if text not in _MEASURING)


def down(server: ModelServer) -> None:
    """Answer 500 to every request, without recording it."""

    def refuse(model: ModelServer, texts: list[str]) -> web.Response:
        model.requests.remove(texts)
        return status(500)(model, texts)  # type: ignore[no-any-return]

    server.faults.extend([refuse] * 100_000)


async def test_a_sync_is_found_by_keyword_while_the_model_is_down(
    redis_url: str, database: Database, worker: WorkerDatabase, server: ModelServer
) -> None:
    """Chunks are found by keyword during an outage, and each is embedded once afterwards."""
    down(server)
    async with worker_of(redis_url, database, server) as running:
        receipts = await publish(
            running, *(change(f"{n}.md", f"Heron number{n}.") for n in range(FILES))
        )
        outcomes = await running.client.wait(receipts, PATIENCE)
        assert all(isinstance(outcome, DocumentIndexed) for outcome in outcomes.values())
        answer = await running.client.ask("docs", "number321", limit=1)
        assert [result.citation.uri for result in answer.results] == ["321.md"]
        assert (answer.coverage, answer.degraded) == (0.0, ("vector",))
        assert await counts(worker) == Counts(chunks=FILES, pending=FILES, refused=0)
        [project] = await Store(worker, RECIPE).statistics()
        assert (project.chunks, project.pending) == (FILES, FILES)

        server.faults.clear()
        await running.client.wait(receipts, PATIENCE, vectors=True)
        assert await counts(worker) == Counts(chunks=FILES, pending=0, refused=0)
        assert embedded(server) == Counter({f"{n}.md\nHeron number{n}.": 1 for n in range(FILES)})
        again = await running.client.ask("docs", "number321", limit=1)
        assert (again.coverage, again.degraded) == (1.0, ())


async def test_texts_of_a_few_changes_are_read_once(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that was not full, and is complete, is the last one."""
    async with headrace(redis_url, database, only=("indexer",)) as running:
        changes = [change(f"{n}.md", f"Heron number{n}.") for n in range(3)]
        receipts = await publish(running, *changes)
        await running.client.wait(receipts, PATIENCE)
    async with tools(redis_url, database) as opened:
        live = await opened.store.generation("docs")
        reads = 0
        read = opened.pending.texts

        async def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*arguments, **options)

        monkeypatch.setattr(opened.pending, "texts", counted)
        waiting = await opened.pending.waiting(live, None)
        positions = [LogPosition(document.position, document.partition) for document in waiting]
        cost = await opened.vector_stage().run_all("docs", live.id, positions)
        assert (cost.chunks, reads) == (3, 1)
        assert await opened.pending.count(live) == 0


async def test_a_refused_text_is_found_by_keyword(
    redis_url: str,
    redis: Redis,
    database: Database,
    worker: WorkerDatabase,
    server: ModelServer,
) -> None:
    """A refused text is counted, causes no dead letter and is found by keyword."""
    async with worker_of(redis_url, database, server) as running:
        await running.change("known.md", "The model is there.")
        server.faults.extend([unless(REFUSED, 400)] * 1_000)
        receipts = await publish(
            running,
            change("bad.md", f"Grebe, {REFUSED}."),
            *(change(f"{n}.md", f"Heron {n}.") for n in range(20)),
        )
        outcomes = await running.client.wait(receipts, PATIENCE, vectors=True)
        [bad, *others] = [outcomes[receipt.token] for receipt in receipts]
        assert isinstance(bad, DocumentEmbedded)
        assert (bad.data.chunks_embedded, bad.data.chunks_refused) == (0, 1)
        assert all(isinstance(outcome, DocumentEmbedded) for outcome in others)
        assert await counts(worker) == Counts(chunks=22, pending=0, refused=1)
        answer = await running.client.ask("docs", "grebe", limit=1)
        assert answer.results[0].citation.uri == "bad.md"
        assert 0 < answer.coverage < 1
        backlog = await read_backlog(redis, Names())
        assert sum(stream.dead_letters for stream in backlog) == 0


async def test_a_question_can_wait_for_vectors(
    redis_url: str, database: Database, server: ModelServer
) -> None:
    """A question with ``vectors`` is stale until they exist, then finds by both retrievers."""
    async with worker_of(redis_url, database, server) as running:
        await running.change("known", "The model is there.")
        down(server)
        [receipt] = await publish(running, change("a", "Herons nest in March."))
        await running.client.wait([receipt], PATIENCE)
        token, moment = receipt.token, timedelta(milliseconds=200)
        answer = await running.client.ask("docs", "herons", min_event=token, max_wait=moment)
        assert not answer.stale
        answer = await running.client.ask(
            "docs", "herons nest", min_event=token, max_wait=moment, vectors=True
        )
        assert answer.stale
        server.faults.clear()
        answer = await running.client.ask(
            "docs",
            "herons nest",
            min_event=token,
            vectors=True,
            max_wait=timedelta(seconds=30),
            timeout=PATIENCE,
        )
        assert (answer.stale, answer.coverage) == (False, 1.0)
        assert answer.results[0].match_type == "hybrid"


async def test_lost_requests_are_made_again(
    redis_url: str,
    redis: Redis,
    database: Database,
    worker: WorkerDatabase,
    server: ModelServer,
) -> None:
    """Requests for vectors that a flush of Redis lost are repeated, and each text embedded once."""
    async with worker_of(redis_url, database, server, only=["indexer"]) as running:
        receipts = await publish(running, *(change(f"{n}.md", f"Heron {n}.") for n in range(5)))
        await running.client.wait(receipts, PATIENCE)
    await redis.flushall()
    pending = PendingVectors(worker, Projects(worker))
    async with worker_of(redis_url, database, server, only=["embedder"]):
        requests = VectorRequests(redis, Names(), pending)
        assert await requests.repair(timedelta()) == 5
        await eventually(lambda: _all_covered(worker), "every chunk has its vector")
    await redis.config_resetstat()
    assert await requests.repair(timedelta()) == 0
    commands: Any = await redis.info("commandstats")
    assert "cmdstat_xlen" not in commands  # no stream is read while no chunk is pending
    assert set(embedded(server).values()) == {1}


async def test_lost_requests_are_made_again_while_others_wait(
    redis_url: str, redis: Redis, database: Database, worker: WorkerDatabase, server: ModelServer
) -> None:
    """What became pending before the oldest request that waits can't be among those."""
    async with worker_of(redis_url, database, server, only=["indexer"]) as running:
        lost = await publish(running, change("lost.md", "A lost heron."))
        await running.client.wait(lost, PATIENCE)
    await redis.flushall()
    live = await Store(worker, RECIPE).generation("docs")
    async with worker.scope(live.project_id, None, live.id) as connection:
        await connection.execute(
            "update pending_vectors set created_at = created_at - interval '1 hour'"
        )
    async with worker_of(redis_url, database, server, only=["indexer"]) as running:
        waiting = await publish(running, change("waiting.md", "A heron that waits."))
        await running.client.wait(waiting, PATIENCE)
    requests = VectorRequests(redis, Names(), PendingVectors(worker, Projects(worker)))
    assert await requests.repair(timedelta(minutes=10)) == 1
    assert await requests.repair(timedelta(minutes=10)) == 0


async def test_only_the_newest_text_is_embedded(
    redis_url: str, database: Database, worker: WorkerDatabase, server: ModelServer
) -> None:
    """An older change whose document has changed since is reported without embedding its text."""
    async with worker_of(redis_url, database, server, only=["indexer"]) as running:
        first = await publish(running, change("a.md", "The old text."))
        await running.client.wait(first, PATIENCE)
        second = await publish(running, change("a.md", "The new text."))
        await running.client.wait(second, PATIENCE)
        assert not embedded(server)
        async with worker_of(redis_url, database, server, only=["embedder"]):
            outcomes = await running.client.wait([*first, *second], PATIENCE, vectors=True)
    chunks = [_embedded_chunks(outcomes[receipt.token]) for receipt in (*first, *second)]
    assert chunks == [0, 1]
    assert embedded(server) == Counter({"a.md\nThe new text.": 1})
    assert await counts(worker) == Counts(chunks=1, pending=0, refused=0)


async def test_a_deleted_document_waits_for_nothing(
    redis_url: str, database: Database, worker: WorkerDatabase, server: ModelServer
) -> None:
    """The text of a deleted document is not sent to the model."""
    async with worker_of(redis_url, database, server, only=["indexer"]) as running:
        await running.client.wait(await publish(running, change("a.md", "Gone soon.")), PATIENCE)
        gone = DocumentChange(project="docs", uri="a.md", change="delete")
        [receipt] = await publish(running, DocumentChanged(data=gone))
        await running.client.wait([receipt], PATIENCE)
        assert await counts(worker) == Counts(chunks=0, pending=0, refused=0)
        async with worker_of(redis_url, database, server, only=["embedder"]):
            await running.client.wait([receipt], PATIENCE, vectors=True)
            await eventually(lambda: _none_waits(running), "the embedder has nothing left to do")
    assert not embedded(server)


def _embedded_chunks(outcome: Any) -> int:
    assert isinstance(outcome, DocumentEmbedded), outcome
    return outcome.data.chunks_embedded


async def _all_covered(worker: WorkerDatabase) -> bool:
    return (await counts(worker)).pending == 0


async def _none_waits(running: Headrace) -> bool:
    redis = Redis.from_url(running.redis_url)
    try:
        backlog: Sequence[Any] = await read_backlog(redis, Names())
    finally:
        await redis.aclose()
    return all(stream.oldest_unacknowledged is None for stream in backlog)
