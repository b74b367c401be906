"""Indexing speed: time until changes are searchable by keyword, and then by vector.

``keyword_chunks_per_s``: the standard library, from the first publish until every chunk is
searchable by keyword (``keyword_s``), with the local model in the worker, while questions are asked
(``ask_p50_ms``, ``ask_p95_ms``). ``pipeline_ratio``: chunks per second of the vectors that follow,
divided by those of the embedder alone on the same chunks with the same number of threads
(``model_threads``). ``engine`` is the precision of the embedder, ``engine_ratio`` its speed on one
thread divided by that of f32. ``noop_chunks_per_s``: from the first publish to the last vector,
with vectors from hashing, i.e. all of the work except the model's. ``telemetry_…`` and
``batch_…`` are the cost of telemetry and of batch ids: see ``bench.telemetry``.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from time import perf_counter

from bench.corpus import python_files, questions
from bench.figures import Report, percentile
from bench.stack import Stack, bench_stack
from bench.telemetry import telemetry_figures
from bench.traffic import Traffic, under_traffic
from events.client.client import Client
from events.models import DocumentChange, DocumentIndexed
from events.names import Lane
from processors.chunking import cut
from processors.chunking.types import Source
from processors.embedders.embedder import Urgency
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.encoder import Precision
from processors.recipes import model_options
from runtime.settings import Settings

__all__ = ["measure"]

ROUNDS = 3
EMBEDDED_CHUNKS = 1_200
NOOP_CHUNKS = 15_000
QUESTIONS_PER_S = 4.0
_ENGINE_ROUNDS = 5
_ENGINE_TEXTS = 100

_PATIENCE = timedelta(minutes=10)

Document = tuple[str, str]


@dataclass(frozen=True)
class _Times:
    """Seconds from first publish until the last chunk is searchable, by keyword and by vector."""

    keyword_s: float
    vector_s: float


async def measure() -> Report:
    """Run each measurement several times, alternating the compared ones; report medians.

    Raises:
        ConfigurationError: the extra ``otel`` is not installed.
    """
    telemetry = await telemetry_figures()
    options = model_options(Settings())
    model = LocalEmbedder(threads=options.threads, precision=options.precision)
    await model.start()
    few, few_texts = _documents(model, EMBEDDED_CHUNKS)
    many, many_texts = _documents(model, NOOP_CHUNKS)
    bare: list[float] = []
    following: list[float] = []
    async with bench_stack() as stack:
        async with stack.worker():
            for number in range(ROUNDS):
                bare.append(await _chunks_per_s(model, few_texts))
                times = await _index(stack, f"model-{number}", few)
                following.append(len(few_texts) / (times.vector_s - times.keyword_s))
        async with stack.worker(HEADRACE_MODEL=HASHING_MODEL):
            noop = [
                len(many_texts) / (await _index(stack, f"noop-{number}", many)).vector_s
                for number in range(ROUNDS)
            ]
    engine = model.precision or Precision.F32
    await model.close()
    ratios = [rate / alone for rate, alone in zip(following, bare, strict=True)]
    return Report(
        "indexing",
        {
            "pipeline_ratio": round(statistics.median(ratios), 3),
            "pipeline_chunks_per_s": round(statistics.median(following), 1),
            "bare_chunks_per_s": round(statistics.median(bare), 1),
            "noop_chunks_per_s": round(statistics.median(noop), 1),
            **await _by_keyword(),
            **telemetry,
            "engine": str(engine),
            "engine_ratio": round(await _ratio_to_f32(engine, few_texts), 2),
            "model_threads": options.threads,
            "chunks": len(few_texts),
            "noop_chunks": len(many_texts),
        },
    )


def _documents(model: LocalEmbedder, chunks: int) -> tuple[list[Document], list[str]]:
    """Return enough files for that many chunks, and the texts that are embedded for them."""
    documents: list[Document] = []
    texts: list[str] = []
    for uri, content in python_files():
        if len(texts) >= chunks:
            break
        documents.append((uri, content))
        source = Source(uri, content, "code", "python")
        texts += [
            f"{piece.header}\n{piece.content}"
            for piece in cut(source, model.limit_tokens, model.count_tokens).chunks
        ]
    return documents, texts


async def _index(stack: Stack, project: str, documents: Sequence[Document]) -> _Times:
    """Publish documents and wait for their vectors."""
    async with Client.connect(stack.redis_url) as client:
        began = perf_counter()
        receipts = await client.publish_many(_changes(project, documents), lane=Lane.BULK)
        keyword_s = 0.0
        async for outcome in client.outcomes(receipts, _PATIENCE, vectors=True):
            if isinstance(outcome, DocumentIndexed):
                keyword_s = perf_counter() - began
        return _Times(keyword_s, perf_counter() - began)


async def _by_keyword() -> dict[str, float]:
    """Index the standard library with the local model, until all is searchable by keyword."""
    documents = python_files()
    async with (
        bench_stack() as stack,
        stack.worker(),
        Client.connect(stack.redis_url) as client,
    ):
        traffic = Traffic(client, "stdlib", iter(()), cycle(questions(200)), 0.0, QUESTIONS_PER_S)
        began = perf_counter()
        receipts = await client.publish_many(_changes("stdlib", documents[:1]), lane=Lane.BULK)
        await client.wait(receipts, timeout=_PATIENCE)
        chunks = 0
        async with under_traffic(traffic):
            receipts += await client.publish_many(_changes("stdlib", documents[1:]), Lane.BULK)
            async for outcome in client.outcomes(receipts, _PATIENCE):
                if isinstance(outcome, DocumentIndexed):
                    chunks += outcome.data.chunks_added
            seconds = perf_counter() - began
    times = traffic.times_ms
    return {
        "keyword_chunks_per_s": round(chunks / seconds, 1),
        "keyword_s": round(seconds, 1),
        "keyword_chunks": chunks,
        "ask_p50_ms": round(percentile(times, 50), 1),
        "ask_p95_ms": round(percentile(times, 95), 1),
        "ask_failures": len(traffic.failures),
    }


def _changes(project: str, documents: Sequence[Document]) -> list[DocumentChange]:
    return [DocumentChange(project=project, uri=uri, content=content) for uri, content in documents]


async def _ratio_to_f32(precision: Precision, texts: Sequence[str]) -> float:
    """Return chunks per second on one thread ÷ those in f32: median of alternating rounds."""
    embedders = [LocalEmbedder(precision=choice) for choice in (precision, Precision.F32)]
    step = max(1, len(texts) // _ENGINE_TEXTS)
    sample = texts[::step][:_ENGINE_TEXTS]
    speeds = [
        [await _chunks_per_s(embedder, sample) for embedder in embedders]
        for _ in range(_ENGINE_ROUNDS + 1)
    ]
    for embedder in embedders:
        await embedder.close()
    # kernels for the lengths of the sample are compiled in the first round
    return statistics.median(speed / exact for speed, exact in speeds[1:])


async def _chunks_per_s(embedder: LocalEmbedder, texts: Sequence[str]) -> float:
    """Return the speed of one call for all texts."""
    started = perf_counter()
    await embedder.embed(texts, Urgency.BULK)
    return len(texts) / (perf_counter() - started)
