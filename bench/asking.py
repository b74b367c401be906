"""Latency of an answer at 50,000 chunks, compared with the same search without streams.

``stream_ratio`` is the median of asking over streams divided by the median of embedding the query
and running the same answering pipeline in this process, both measured alternately. ``import_ratio``
is the median while another worker imports documents, divided by the idle median.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import islice
from time import perf_counter

from bench.corpus import python_files, questions
from bench.documents import document_writes
from bench.figures import Report, percentile
from bench.stack import Stack, bench_stack
from events.client.client import Client
from events.models import DocumentChange, Query
from events.names import Lane
from processors.wiring.services import Services, open_services

__all__ = ["measure"]

PROJECT = "stdlib"
CHUNKS = 50_000
QUESTIONS = 300
WARM_UP = 30
DOCUMENTS_PER_WRITE = 32

Ask = Callable[[str], Awaitable[object]]


async def measure() -> Report:
    """Fill an index, then send each question once, in one way; report milliseconds and ratios."""
    texts = iter(questions(2 * WARM_UP + 3 * QUESTIONS))
    async with bench_stack() as stack, open_services(stack.settings(), ["answerer"]) as services:
        chunks = await _fill(services)
        await services.maintenance.run_once()
        async with stack.worker("--only", "answerer"), Client.connect(stack.redis_url) as client:
            streams, direct = _over_streams(client), _directly(services)
            await _in_turn([streams, direct], texts, WARM_UP)
            streamed, searched = await _in_turn([streams, direct], texts, QUESTIONS)
            async with _importing(stack, client):
                [busy] = await _in_turn([streams], texts, QUESTIONS)
    return Report("asking", _figures(streamed, searched, busy) | {"chunks": chunks})


def _figures(
    streamed: Sequence[float], searched: Sequence[float], busy: Sequence[float]
) -> dict[str, float]:
    p50 = statistics.median(streamed)
    return {
        "stream_ratio": round(p50 / statistics.median(searched), 3),
        "import_ratio": round(statistics.median(busy) / p50, 3),
        "p50_ms": round(p50, 2),
        "p99_ms": round(percentile(streamed, 99), 2),
        "direct_p50_ms": round(statistics.median(searched), 2),
        "importing_p50_ms": round(statistics.median(busy), 2),
        "importing_p99_ms": round(percentile(busy, 99), 2),
    }


def _over_streams(client: Client) -> Ask:
    async def ask(text: str) -> object:
        return await client.ask(PROJECT, text)

    return ask


def _directly(services: Services) -> Ask:
    async def ask(text: str) -> object:
        query = Query(project=PROJECT, text=text, reply_to="nobody")
        return await services.answering.answer("direct", query)

    return ask


async def _in_turn(functions: Sequence[Ask], texts: Iterator[str], count: int) -> list[list[float]]:
    """Return milliseconds per question by way; each question is new, so that none is cached."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(count):
        for function, milliseconds in zip(functions, times, strict=True):
            text = next(texts)
            started = perf_counter()
            await function(text)
            milliseconds.append((perf_counter() - started) * 1000)
    return times


@asynccontextmanager
async def _importing(stack: Stack, client: Client) -> AsyncIterator[None]:
    """Keep another worker busy with an import for the duration of the context."""
    async with stack.worker("--only", "indexer"):
        changes = [
            DocumentChange(project="import", uri=uri, content=content)
            for uri, content in python_files()
        ]
        receipts = await client.publish_many(changes, lane=Lane.BULK)
        await client.wait(receipts[:1], timeout=timedelta(minutes=2))
        yield


async def _fill(services: Services) -> int:
    """Store real text with topical vectors: real embeddings take minutes and change no figure."""
    documents = document_writes(PROJECT, services.count_tokens)
    written = 0
    while written < CHUNKS and (group := list(islice(documents, DOCUMENTS_PER_WRITE))):
        await services.store.apply([write for _, write in group])
        written += sum(len(write.chunks) for _, write in group)
    return written
