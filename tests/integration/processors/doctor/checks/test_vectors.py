"""Findings about vectors: pending ones, lost requests and refused texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Names, Topic
from processors.doctor.findings import Severity
from processors.wiring import operator_tools
from processors.wiring.operator_tools import OperatorTools
from tests.support.databases import Database
from tests.support.doctors import examine, finding_names, is_archived
from tests.support.drifts import DRIFTS
from tests.support.model_server import ModelServer, running_server, status, unless
from tests.support.replays import HASHING, damage, rows, tools
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.waiting import eventually

MODEL = "openai/test-model"
DOCUMENTS = 5
REFUSED = "the model refuses this"
INDEXING = ("indexer", "archiver")
WITHOUT_VECTOR = """
    select c.id from chunks c
    where
        c.generation_id = $1
        and not exists (
            select from embeddings e where e.generation_id = c.generation_id and e.chunk_id = c.id
        )
"""


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Model server with scripted faults."""
    async with running_server() as running:
        yield running


def remote(server: ModelServer) -> dict[str, Any]:
    """Settings of a worker or doctor that uses ``server`` as its model."""
    address = {"model_api_key": server.key, "model_base_url": server.base_url}
    return {"model": MODEL, "model_requests": {"failures": 3, "retries": 0}, **address}


async def publish(worker: Headrace, texts: dict[str, str], *, vectors: bool) -> None:
    """Publish documents to ``docs`` on the bulk lane."""
    changes = [
        DocumentChanged(data=DocumentChange(project="docs", uri=uri, content=text))
        for uri, text in texts.items()
    ]
    receipts = await worker.client.publish_many(changes, Lane.BULK)
    await worker.client.wait(receipts, PATIENCE, vectors=vectors)


async def all_have_vectors(database: Database) -> bool:
    """True if every chunk of ``docs`` has its vector."""
    return not await rows(database, "docs", WITHOUT_VECTOR)


async def test_lost_requests_are_found_and_made_again(
    redis_url: str, redis: Redis, database: Database, tmp_path: Path
) -> None:
    """Pending vectors are a finding only without a request, and the repair requests them."""
    texts = {f"{n}.md": f"Heron {n}." for n in range(DOCUMENTS)}
    async with tools(redis_url, database, home=tmp_path) as opened:
        worker = headrace(redis_url, database, only=INDEXING, model=HASHING, home=tmp_path)
        async with worker as running:
            await publish(running, texts, vectors=False)
            await eventually(lambda: is_archived(opened), "everything is archived")
        assert (await examine(opened)).findings == []

        await redis.delete(Names().stream(Topic.CHUNKED_BULK))
        health = await examine(opened)
        [finding] = health.findings
        assert (finding.name, finding.count, health.is_healthy) == ("vector.unrequested", 5, False)
        assert finding.examples(1) == ["0.md"]

        repaired = await examine(opened, repair=True)
        assert (repaired.failures, repaired.remaining) == ([], [])
        assert not await all_have_vectors(database)
        async with headrace(redis_url, database, only=["embedder"], model=HASHING, home=tmp_path):
            await eventually(lambda: all_have_vectors(database), "every chunk has its vector")
        assert (await examine(opened)).findings == []


async def test_one_request_has_a_limit(
    redis_url: str,
    redis: Redis,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a switch the oldest documents are requested, and embedders request the others."""
    monkeypatch.setattr(operator_tools, "_MOST_DOCUMENTS", 2)
    texts = {f"{n}.md": f"Heron {n}." for n in range(DOCUMENTS)}
    stream = Names().stream(Topic.CHUNKED_BULK)
    async with tools(redis_url, database, home=tmp_path) as opened:
        worker = headrace(redis_url, database, only=INDEXING, model=HASHING, home=tmp_path)
        async with worker as running:
            await publish(running, texts, vectors=False)
        generation = await opened.store.generation("docs")
        await redis.delete(stream)
        await opened.request_vectors("docs", generation)
        assert await redis.xlen(stream) == 2
        documents = await opened.pending.waiting(generation, None)
        await redis.delete(stream)
        positions = {LogPosition(each.position, each.partition) for each in documents[2:]}
        await opened.request_vectors("docs", generation, positions)
        assert await redis.xlen(stream) == len(positions) == 3


async def test_an_emptied_redis_loses_no_vectors(
    redis_url: str, redis: Redis, database: Database, tmp_path: Path
) -> None:
    """After a flush of Redis the doctor requests the missing vectors."""
    async with tools(redis_url, database, home=tmp_path) as opened:
        worker = headrace(redis_url, database, only=INDEXING, model=HASHING, home=tmp_path)
        async with worker as running:
            await publish(running, {"a.md": "Heron."}, vectors=False)
            await eventually(lambda: is_archived(opened), "everything is archived")
        await redis.flushall()
        repaired = await examine(opened, repair=True)
        assert finding_names(repaired) == {"vector.unrequested"}
        assert not repaired.remaining
        async with headrace(redis_url, database, only=["embedder"], model=HASHING, home=tmp_path):
            await eventually(lambda: all_have_vectors(database), "every chunk has its vector")


@pytest.fixture
async def refused(
    redis_url: str, database: Database, tmp_path: Path, server: ModelServer
) -> AsyncIterator[OperatorTools]:
    """Three documents, one of which has a text that the model refuses."""
    server.faults.extend([unless(REFUSED, 400)] * 1_000)
    settings = {**remote(server), "home": tmp_path}
    async with tools(redis_url, database, **settings) as opened:
        async with headrace(redis_url, database, **settings) as worker:
            bad = {"bad.md": f"Grebe, {REFUSED}."}
            await publish(worker, {"a.md": "Heron.", **bad, "c.md": "Stork."}, vectors=True)
            await eventually(lambda: is_archived(opened), "everything is archived")
        yield opened


async def test_a_refused_text_is_a_note(refused: OperatorTools) -> None:
    """A refused text is a note with its document and remedy, and not a finding."""
    health = await examine(refused)
    [note] = health.findings
    assert (note.name, note.severity, health.is_healthy) == ("vector.refused", Severity.NOTE, True)
    [label] = note.examples(5)
    assert label.startswith(f"bad.md chunk 0: {MODEL}: ")
    assert "replay with another model" in note.remedy


async def test_a_document_with_a_refused_text_can_be_repaired(
    refused: OperatorTools, database: Database
) -> None:
    """A document with a refused text can be repaired, and its text is refused again."""
    before = await examine(refused)
    damaged = """
        update chunks set content = '!'
        where generation_id = $1 and content like 'Grebe%'
    """
    await damage(database, damaged)
    repaired = await examine(refused, repair=True)
    assert finding_names(repaired) == {"document.rows", "vector.refused"}
    assert not repaired.failures
    assert [finding.name for finding in repaired.remaining] == ["vector.refused"]
    assert repaired.digest == before.digest


async def test_a_repair_does_not_wait_for_a_model(
    redis_url: str, database: Database, tmp_path: Path, server: ModelServer
) -> None:
    """A repair succeeds while the model is down, and an embedder adds the vectors later."""
    settings = {**remote(server), "home": tmp_path}
    async with tools(redis_url, database, **settings) as opened:
        async with headrace(redis_url, database, **settings) as worker:
            await publish(worker, {"a.md": "Heron.", "b.md": "Grebe."}, vectors=True)
            await eventually(lambda: is_archived(opened), "everything is archived")
        await damage(database, DRIFTS["a lost vector"].statement)
        await damage(database, "delete from vector_cache where $1::int > 0")
        server.faults.extend([status(500)] * 1_000)
        repaired = await examine(opened, repair=True)
        assert finding_names(repaired) == {"vector.missing"}
        assert (repaired.failures, repaired.remaining) == ([], [])
        server.faults.clear()
        async with headrace(redis_url, database, **settings):
            await eventually(lambda: all_have_vectors(database), "every chunk has its vector")
        assert (await examine(opened)).findings == []
