"""How fast changes become searchable, beside the bare embedder on the same chunks.

``pipeline_ratio`` is chunks per second from the first publish to the last commit, through Redis,
one worker process and Postgres, divided by chunks per second of the embedder alone with the same
number of threads. ``noop_chunks_per_s`` leaves the model out (vectors by hashing): what all the
rest can do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import timedelta
from time import perf_counter

from bench.corpus import python_files
from bench.figures import Report
from bench.stack import Stack, bench_stack
from events.client import Client
from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from processors.indexing.chunking import chunk
from processors.indexing.chunking.types import Source
from processors.inference.hashing import HASHING_MODEL
from processors.inference.local import LocalEmbedder
from processors.inference.types import Urgency

__all__ = ["measure"]

ROUNDS = 3
EMBEDDED_CHUNKS = 1_200
NOOP_CHUNKS = 15_000

Document = tuple[str, str]


async def measure() -> Report:
    """Run each measurement three times, the compared ones in turn; medians."""
    model = LocalEmbedder()
    await model.start()
    few, few_texts = _documents(model, EMBEDDED_CHUNKS)
    many, many_texts = _documents(model, NOOP_CHUNKS)
    bare: list[float] = []
    whole: list[float] = []
    async with bench_stack() as stack:
        async with stack.worker():
            for number in range(ROUNDS):
                bare.append(await _embed(model, few_texts))
                whole.append(await _index(stack, f"model-{number}", few, len(few_texts)))
        async with stack.worker(HEADRACE_MODEL=HASHING_MODEL):
            noop = [
                await _index(stack, f"noop-{number}", many, len(many_texts))
                for number in range(ROUNDS)
            ]
    await model.close()
    ratios = [one / other for one, other in zip(whole, bare, strict=True)]
    return Report(
        "indexing",
        {
            "pipeline_ratio": round(statistics.median(ratios), 3),
            "pipeline_chunks_per_s": round(statistics.median(whole), 1),
            "bare_chunks_per_s": round(statistics.median(bare), 1),
            "noop_chunks_per_s": round(statistics.median(noop), 1),
            "chunks": len(few_texts),
            "noop_chunks": len(many_texts),
        },
    )


def _documents(model: LocalEmbedder, chunks: int) -> tuple[list[Document], list[str]]:
    """Enough files for so many chunks, and what is embedded of them."""
    documents: list[Document] = []
    texts: list[str] = []
    for uri, content in python_files():
        if len(texts) >= chunks:
            break
        documents.append((uri, content))
        source = Source(uri, content, "code", "python")
        texts += [
            f"{one.header}\n{one.content}"
            for one in chunk(source, model.limit_tokens, model.count_tokens)
        ]
    return documents, texts


async def _embed(model: LocalEmbedder, texts: Sequence[str]) -> float:
    started = perf_counter()
    await model.embed(texts, Urgency.BULK)
    return len(texts) / (perf_counter() - started)


async def _index(stack: Stack, project: str, documents: Sequence[Document], chunks: int) -> float:
    events = [
        DocumentChanged(data=DocumentChange(project=project, uri=uri, content=content))
        for uri, content in documents
    ]
    async with Client.connect(stack.redis_url) as client:
        started = perf_counter()
        receipts = await client.publish_many(events, lane=Lane.BULK)
        await client.wait(receipts, timeout=timedelta(minutes=10))
        return chunks / (perf_counter() - started)
