"""Outage of a model: vectors wait, and questions are answered by keyword."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged, DocumentEmbedded, DocumentIndexed
from events.names import GROUPS, Lane, Names, Topic
from events.streams.backlog import read_backlog
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime import metrics
from tests.support.databases import Database
from tests.support.model_server import ModelServer, running_server, stall, status
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.waiting import eventually, patience

MODEL = "openai/test-model"
DOWN = [status(503)] * 10_000
BULK = Names().stream(Topic.CHUNKED_BULK)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    # The gauge is the process's: an earlier test may have left its circuit open.
    metrics.CIRCUIT_STATE.set(metrics.CIRCUIT_VALUES["closed"], model=MODEL)
    async with running_server() as server:
        yield server


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


async def circuit_is(state: float) -> None:
    """Wait until the worker's circuit is in the state."""
    await eventually(
        lambda: metrics.snapshot().get(f"headrace_model_circuit_state{{model={MODEL}}}") == state,
        f"circuit {state}",
    )


async def published(worker: Headrace, project: str, count: int, lane: Lane) -> list[Receipt]:
    return await worker.client.publish_many(
        [
            DocumentChanged(
                data=DocumentChange(project=project, uri=f"{lane}/{n}.md", content=f"Text {n}.")
            )
            for n in range(count)
        ],
        lane,
    )


async def all_indexed(worker: Headrace, receipts: Sequence[Receipt]) -> bool:
    """True if all changes are indexed and have their vectors."""
    outcomes = await worker.client.wait(receipts, PATIENCE, vectors=True)
    expected = DocumentIndexed | DocumentEmbedded
    return all(isinstance(outcome, expected) for outcome in outcomes.values())


async def most_deliveries(redis: Redis) -> int:
    rows: Any = await redis.xpending_range(BULK, GROUPS[Topic.CHUNKED_BULK], "-", "+", 10_000)
    return max((row["times_delivered"] for row in rows), default=0)


async def test_changes_wait_for_a_model_and_questions_do_not(
    redis_url: str, redis: Redis, database: Database, server: ModelServer
) -> None:
    """During an outage changes wait, questions get keyword answers, and only probes are sent."""
    async with worker_of(redis_url, database, server) as worker:
        await worker.change("known.md", "What is known before.")
        server.faults.extend(DOWN)
        receipts = await published(worker, "docs", 400, Lane.BULK)
        receipts += await published(worker, "docs", 20, Lane.LIVE)
        await circuit_is(1.0)
        begun = monotonic()
        answers = [await worker.client.ask("docs", f"what is known {n}") for n in range(5)]
        assert monotonic() - begun < patience(2)
        assert all(answer.degraded == ("vector",) for answer in answers)
        assert all(answer.results for answer in answers)

        server.requests.clear()
        await eventually(lambda: len(server.requests) >= 2, "two probes")
        assert all(texts == ["width"] for texts in server.requests)
        backlog = await read_backlog(redis, Names())
        assert sum(one.dead_letters for one in backlog) == 0
        assert all(one.pending <= 300 for one in backlog)
        assert await most_deliveries(redis) == 1

        server.faults.clear()
        assert await all_indexed(worker, receipts)
        assert not (await worker.client.ask("docs", "what is known now")).degraded


async def test_a_stalled_model_costs_few_questions_their_patience(
    redis_url: str, database: Database, server: ModelServer
) -> None:
    """After a few timeouts of questions, later ones skip the model."""
    async with worker_of(redis_url, database, server) as worker:
        await worker.change("known.md", "What is known before.")
        server.faults.extend([stall] * 1000)
        deadline = timedelta(seconds=patience(5))
        first = [worker.client.ask("docs", f"known {n}", timeout=deadline) for n in range(3)]
        assert all(answer.degraded for answer in await asyncio.gather(*first))
        begun = monotonic()
        answer = await worker.client.ask("docs", "what is known", timeout=deadline)
        assert answer.degraded == ("vector",)
        assert monotonic() - begun < deadline.total_seconds() / 5
        server.faults.clear()
        server.gate.set()


async def test_a_worker_starts_while_its_model_is_down(
    redis_url: str, database: Database, server: ModelServer
) -> None:
    """A worker starts during an outage, answers by keyword and indexes later changes."""
    async with worker_of(redis_url, database, server) as worker:
        await worker.change("known.md", "What is known before.")
    server.faults.extend(DOWN)
    async with worker_of(redis_url, database, server) as worker:
        answer = await worker.client.ask("docs", "what is known")
        assert answer.degraded == ("vector",)
        assert answer.results
        receipts = await published(worker, "docs", 3, Lane.LIVE)
        server.faults.clear()
        assert await all_indexed(worker, receipts)


async def test_one_project_s_model_keeps_no_other_project_waiting(
    redis_url: str, redis: Redis, database: Database, server: ModelServer
) -> None:
    """An outage of one project's model does not delay the changes of another."""
    async with worker_of(redis_url, database, server) as worker:
        await published(worker, "remote", 1, Lane.BULK)
        await worker.change("known.md", "Text.", project="remote", lane=Lane.BULK)
    server.faults.extend(DOWN)
    async with worker_of(redis_url, database, server, model=HASHING_MODEL) as worker:
        waiting: list[Receipt] = []
        others: list[Receipt] = []
        for _ in range(3):
            waiting += await published(worker, "remote", 40, Lane.BULK)
            others += await published(worker, "local", 40, Lane.BULK)
        assert await all_indexed(worker, others)
        backlog = await read_backlog(redis, Names())
        assert sum(one.dead_letters for one in backlog) == 0
        server.faults.clear()
        assert await all_indexed(worker, waiting)
