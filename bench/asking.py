"""Latency of an answer among 50,000 chunks or more, compared with the same search without streams.

``stream_ratio`` is the median of asking over streams divided by the median of embedding the query
and running the same answering pipeline in this process, both measured alternately. ``import_ratio``
is the median while another worker imports documents, divided by the idle median. ``search_p50_ms``
is the median over streams without the embedding of the query.

``name``, ``word`` and ``regex`` are exact searches over streams: for whole identifiers, for whole
words of questions, frequent ones included, and for expressions without a word. ``regex_truncated``
is the share of the last that a bound ended.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import perf_counter

from bench.corpus import python_files, questions
from bench.documents import fill
from bench.figures import Ask, Report, in_turn, percentile
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
EXACT = 200
_NAME = re.compile(r"\b[A-Za-z]+_[a-z_]+\b|\b[A-Z][a-z]+[A-Z]\w+\b")
_WORD = re.compile(r"[A-Za-z_]{4,}")


async def measure(chunks: int = CHUNKS) -> Report:
    """Fill an index, then send each question once, in one way; report milliseconds and ratios."""
    texts = iter(questions(2 * WARM_UP + 3 * QUESTIONS))
    async with bench_stack() as stack, open_services(stack.settings(), ["answerer"]) as services:
        chunks = await fill(services, PROJECT, chunks)
        await services.maintenance.run_once()
        async with stack.worker("--only", "answerer"), Client.connect(stack.redis_url) as client:
            embedding: list[float] = []
            streams, direct = _over_streams(client, embedding), _directly(services)
            await in_turn([streams, direct], texts, WARM_UP)
            embedding.clear()
            streamed, searched = await in_turn([streams, direct], texts, QUESTIONS)
            others = [total - embed for total, embed in zip(streamed, embedding, strict=True)]
            async with _importing(stack, client):
                [busy] = await in_turn([streams], texts, QUESTIONS)
            exact = await _exact_figures(client)
    figures = {**_figures(streamed, searched, busy), "search_p50_ms": _median(others)}
    return Report("asking", figures | exact | {"chunks": chunks})


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 2)


async def _exact_figures(client: Client) -> dict[str, float]:
    texts = [text for _, text in python_files()[:200]]
    names = _sample(_NAME, texts)
    name_times, _ = await _exact_times(client, names, whole_words=True)
    words = _sample(_WORD, questions(QUESTIONS, seed=5))
    word_times, _ = await _exact_times(client, words, whole_words=True)
    expressions = [rf"{name[:3]}\w*{name[-2:]}[^a-z]" for name in names]
    regex_times, truncated = await _exact_times(client, expressions, regex=True)
    return {
        "name_p50_ms": _median(name_times),
        "name_p95_ms": round(percentile(name_times, 95), 2),
        "word_p50_ms": _median(word_times),
        "word_p95_ms": round(percentile(word_times, 95), 2),
        "regex_p50_ms": _median(regex_times),
        "regex_p95_ms": round(percentile(regex_times, 95), 2),
        "regex_truncated": round(truncated / len(regex_times), 3),
    }


def _sample(pattern: re.Pattern[str], texts: Sequence[str]) -> list[str]:
    distinct = sorted({match for text in texts for match in pattern.findall(text)})
    return random.Random(5).sample(distinct, WARM_UP + EXACT)


async def _exact_times(
    client: Client, patterns: Sequence[str], *, regex: bool = False, whole_words: bool = False
) -> tuple[list[float], int]:
    """Milliseconds of each pattern after the first ones; number of their truncated answers."""
    times: list[float] = []
    truncated: list[bool] = []
    for pattern in patterns:
        began = perf_counter()
        answer = await client.ask(
            PROJECT, pattern, mode="exact", regex=regex, whole_words=whole_words
        )
        times.append((perf_counter() - began) * 1000)
        truncated.append(answer.exact is not None and answer.exact.truncated)
    return times[WARM_UP:], sum(truncated[WARM_UP:])


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


def _over_streams(client: Client, embedding: list[float]) -> Ask:
    """Ask over streams; add the milliseconds of each embedding of a query to ``embedding``."""

    async def ask(text: str) -> object:
        answer = await client.ask(PROJECT, text)
        embedding.append(answer.timings_ms["embed"])
        return answer

    return ask


def _directly(services: Services) -> Ask:
    async def ask(text: str) -> object:
        query = Query(project=PROJECT, text=text, reply_to="nobody")
        return await services.answering.answer("direct", query)

    return ask


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
