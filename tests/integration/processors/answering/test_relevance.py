"""Reranking by a provider over real sockets: order, degradation, deadline and costs."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from structlog.testing import capture_logs

from events.models import Query, QueryAnswer
from processors.answering.fusion import Fused
from processors.answering.relevance import RelevanceStep
from processors.embedders.remote import provider
from processors.embedders.remote.circuit_breaker import CircuitOptions, CircuitState
from processors.embedders.remote.reranker import LiteLLMReranker
from runtime import metrics
from runtime.errors import ConfigurationError, UsageError
from store.postgres.pool import Database as WorkerDatabase
from store.types import ChunkRow
from tests.support.contexts import costs
from tests.support.databases import Database
from tests.support.rerank_server import (
    RerankServer,
    answers,
    correct,
    running_reranker,
    stall,
    status,
)
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually, patience

MODEL = "cohere/rerank-v3.5"
LONG = timedelta(minutes=1)
TEXTS = ["reeds", "a weir", "weir beside weir", "mud"]
BY_RELEVANCE = [2, 1, 0, 3]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RerankServer]:
    monkeypatch.setenv("COHERE_API_KEY", "right-key")
    async with running_reranker() as server:
        yield server


def query_of(**fields: Any) -> Query:
    return Query(project="docs", text="Where is the weir?", reply_to="headrace:reply:a", **fields)


def step_of(
    server: RerankServer, timeout: timedelta = LONG, retries: int = 0, **options: Any
) -> RelevanceStep:
    circuit = CircuitOptions(failures=2, cancelled_after=timedelta(0))
    reranker = LiteLLMReranker(MODEL, server.base_url, timeout, retries, circuit)
    return RelevanceStep(reranker, timeout=timeout, **options)


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """The library for model providers, whose import takes longer than these tests allow a model."""
    provider._load_litellm()


def chunk_of(number: int) -> Fused:
    return Fused(number, 1.0 - number / 10, "keyword", None, None)


ROW = ChunkRow(
    chunk_id=0,
    document_id=0,
    uri="a.md",
    kind="markdown",
    title=None,
    content="",
    start_line=1,
    end_line=1,
    page=None,
    locator=None,
    symbol=None,
    heading_path=(),
    commit=None,
    permalink_template=None,
    metadata={},
    tokens=1,
)


async def rows_of(numbers: Sequence[int]) -> dict[int, ChunkRow]:
    return {
        number: replace(ROW, chunk_id=number, content=TEXTS[number])
        for number in numbers
        if number < len(TEXTS)
    }


async def order_of(
    step: RelevanceStep, left: timedelta = LONG, count: int = len(TEXTS), **fields: Any
) -> tuple[list[int], bool]:
    """Numbers of the chunks in the step's order, and True if it is degraded."""
    ranked = await step.order(
        query_of(**fields), 1, list(map(chunk_of, range(count))), rows_of, left
    )
    return [chunk.chunk_id for chunk in ranked.chunks], ranked.is_degraded


async def test_relevance_decides_the_order_and_the_rest_follows(server: RerankServer) -> None:
    """Compared chunks come first by relevance, ties and all others in fused order."""
    step = step_of(server, candidates=3)
    with capture_logs() as logs:
        assert await order_of(step) == ([2, 1, 0, 3], False)
        assert await order_of(step, count=2) == ([1, 0], False)
    [(question, texts), _] = server.requests
    assert question == "Where is the weir?"
    assert texts == [f"a.md\n{text}" for text in TEXTS[:3]]
    announced = [entry for entry in logs if entry["event"] == "rerank.sends_texts"]
    assert [entry["provider"] for entry in announced] == ["cohere"]
    assert step.candidates(query_of(rerank=False)) == 0
    await step.close()


async def test_a_chunk_that_is_gone_is_not_compared(server: RerankServer) -> None:
    """A chunk that was deleted since the search keeps its place after the compared ones."""
    step = step_of(server)
    assert await order_of(step, count=5) == ([*BY_RELEVANCE, 4], False)
    assert len(server.requests[0][1]) == len(TEXTS)
    await step.close()


async def test_a_least_relevance_is_a_filter(server: RerankServer) -> None:
    """Chunks of a lower or unknown relevance are left out, unless the reranker fails."""
    step = step_of(server)
    assert await order_of(step, min_relevance=0.5) == ([2, 1], False)
    assert await order_of(step, min_relevance=0.95) == ([], False)
    server.faults.append(status(500))
    assert await order_of(step, min_relevance=0.5) == ([0, 1, 2, 3], True)
    await step.close()


def test_a_least_relevance_needs_a_reranker() -> None:
    """A filter that cannot be applied is refused, not ignored."""
    with pytest.raises(UsageError, match="min_relevance needs a reranker"):
        RelevanceStep(None).candidates(query_of(min_relevance=0.5))
    with pytest.raises(ValueError, match="min_relevance needs the reranker"):
        query_of(min_relevance=0.5, rerank=False)


FAULTS = {
    "server error": status(503),
    "wrong key": status(401),
    "unknown model": status(404),
    "rate limited": status(429, Retry_After="60"),
    "no results": answers(lambda _: None),
    "fewer results": answers(lambda results: results[:-1]),
    "a result more": answers(lambda results: [*results, {"index": 9, "relevance_score": 0.5}]),
    "duplicate index": answers(lambda results: [{**result, "index": 0} for result in results]),
    "index out of range": answers(
        lambda results: [{**result, "index": result["index"] + 1} for result in results]
    ),
    "negative index": answers(
        lambda results: [{**result, "index": result["index"] - 1} for result in results]
    ),
    "not a number": answers(
        lambda results: [{**result, "relevance_score": math.nan} for result in results]
    ),
    "a text for a number": answers(
        lambda results: [{**result, "relevance_score": "much"} for result in results]
    ),
}


async def test_every_fault_leaves_the_fused_order(server: RerankServer) -> None:
    """A provider that refuses, fails or sends wrong results does not change the answer."""
    for name, fault in FAULTS.items():
        step = step_of(server)
        server.faults.extend([fault, fault])
        assert await order_of(step) == ([0, 1, 2, 3], True), name
        await step.close()
        server.faults.clear()


async def test_a_late_reranker_takes_half_of_the_time_left_at_most(server: RerankServer) -> None:
    """The limit is the timeout or half of the time left; a stalled model soon counts as down."""
    step = step_of(server, timeout=timedelta(seconds=30))
    server.faults.extend([stall, stall])
    began = monotonic()
    for _ in range(2):
        assert await order_of(step, timedelta(seconds=1)) == ([0, 1, 2, 3], True)
    assert monotonic() - began < patience(5)
    assert step.circuits[0].state is not CircuitState.CLOSED
    sent = len(server.requests)
    assert await order_of(step) == ([0, 1, 2, 3], True)
    assert all(texts == ["word"] for _, texts in server.requests[sent:]), "only probes are sent"
    assert await order_of(step, timedelta(0)) == ([0, 1, 2, 3], True)
    await step.close()


async def test_a_fault_is_retried_within_the_time(server: RerankServer) -> None:
    """A single fault does not degrade the answer if there is time for another request."""
    step = step_of(server, retries=1)
    server.faults.extend([status(503), correct])
    assert await order_of(step) == (BY_RELEVANCE, False)
    await step.close()


async def test_an_answer_is_reranked_and_its_cost_entered(
    redis_url: str, database: Database, worker: WorkerDatabase, server: RerankServer
) -> None:
    """A worker reranks answers, marks those without a fitting result, and enters the costs."""
    rerank = {"model": MODEL, "base_url": server.base_url, "candidates": 10, "timeout": 20}
    async with headrace(redis_url, database, rerank=rerank) as running:
        await running.change("a.md", "Where is the river wide? The river is wide at the reeds.")
        await running.change("b.md", "Where is the weir? A weir beside a weir.")
        question = "where is the river wide"
        plain = await running.client.ask("docs", question, rerank=False)
        assert _uris(plain) == ["a.md", "b.md"]
        assert server.requests == []
        answer = await running.client.ask("docs", question, explain=True)
        assert _uris(answer) == ["b.md", "a.md"]
        assert [result.scores.reranked for result in answer.results] == [0.9, 0.1]
        assert "relevance 0.900" in str(answer.results[0].explanation)
        assert "rerank" in answer.timings_ms
        nothing = await running.client.ask("docs", question, min_relevance=0.95)
        assert (nothing.results, nothing.weak) == ((), True)
        fitting = await running.client.ask("docs", question, min_relevance=0.5)
        assert (_uris(fitting), fitting.weak) == (["b.md"], False)
        server.faults.append(status(400))
        degraded = await running.client.ask("docs", question)
        assert degraded.degraded == ("rerank",)
        assert _uris(degraded) == ["a.md", "b.md"]
        assert metrics.snapshot()["headrace_reranks_total{outcome=reranked}"] >= 3

        async def entered() -> bool:
            return [cost.requests for cost in await costs(worker)] == [3]

        await eventually(entered, "the costs are entered")
        [cost] = await costs(worker)
        assert (cost.model, cost.purpose, cost.changes) == (MODEL, "rerank", 0)
        assert cost.cost_usd == pytest.approx(3 * 0.002)
        await _check_sections(running, server, question)


async def _check_sections(running: Headrace, server: RerankServer, question: str) -> None:
    """Relevance orders each section, and the section of the best result comes first."""
    await running.change("c.py", "def wide():\n    return 'the river is wide at the reeds'\n")
    await running.change("d.py", "def river():\n    return 'a weir'\n")
    fused = await running.client.ask("docs", question, sections=True, rerank=False)
    answer = await running.client.ask("docs", question, sections=True)
    assert _uris(answer) == ["b.md", "a.md", "d.py", "c.py"]
    assert [result.section for result in answer.results] == ["documents"] * 2 + ["code"] * 2
    assert _uris(answer) != _uris(fused)
    fitting = await running.client.ask("docs", question, sections=True, min_relevance=0.5)
    assert _uris(fitting) == ["b.md", "d.py"]
    server.faults.append(status(400))
    degraded = await running.client.ask("docs", question, sections=True)
    assert (degraded.degraded, _uris(degraded)) == (("rerank",), _uris(fused))


def _uris(answer: QueryAnswer) -> list[str]:
    return [result.citation.uri for result in answer.results]


async def test_a_worker_needs_the_key_of_its_reranker(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose reranker has no key does not start."""
    monkeypatch.delenv("COHERE_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="needs a key") as refused:
        async with headrace(redis_url, database, rerank={"model": MODEL}):
            pass
    assert "COHERE_API_KEY" in refused.value.remedy
