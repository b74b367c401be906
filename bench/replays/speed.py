"""Speed of rebuilding an index of 50,000 chunks from the archive, with all vectors cached.

``chunks_per_s`` is measured from the first byte of the log to the build's last commit: reading,
cutting, words, rows, vectors from the cache. ``hnsw_s`` (with the folding of keyword segments),
``verify_s`` and ``switch_ms`` are the later steps. ``build_ratio`` divides the rate by that of only
cutting the same documents, in as many processes, without storing anything. ``model_calls``: texts
that a model was asked to embed; it must be 0.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from time import perf_counter

from bench.documents import LIMIT_TOKENS, document_writes
from bench.figures import Report
from bench.stack import bench_stack
from events.models import DocumentChange, DocumentChanged
from events.streams.changes import LoggedChange
from processors.chunking.sandbox.pool import ChunkingPool
from processors.chunking.sandbox.token_counter import WordwiseCounter
from processors.chunking.types import Source
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from processors.replay.generations import generation_before, switch_to
from processors.replay.replay import Replay
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.wiring.operator_tools import OperatorTools, open_operator_tools
from store.documents.bulk import BulkWriter
from store.types import DocumentWrite

__all__ = ["measure"]

PROJECT = "stdlib"
CHUNKS = 50_000
DOCUMENTS_PER_WRITE = 100

Document = tuple[str, DocumentWrite]


async def measure() -> Report:
    """Fill log, live index and cache; only cut; replay and promote; roll back."""
    documents = _documents()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as home:
        async with bench_stack() as stack:
            settings = stack.settings().model_copy(update={"archive_url": f"{home}/archive"})
            async with open_operator_tools(settings) as tools:
                await _fill(tools, documents)
                await tools.pool.start()
                cutting_s = await _cut_alone(tools.pool, documents)
            async with open_operator_tools(settings) as tools:
                await tools.pool.start()
                report = await Replay(tools, PROJECT, Choice(), None, _show).run()
                former = await generation_before(tools, PROJECT)
                returned = await switch_to(tools, PROJECT, former, lambda _done, _total: None)
    return Report("replaying", _figures(report, cutting_s, returned.seconds))


def _figures(report: ReplayReport, cutting_s: float, rollback_s: float) -> dict[str, float]:
    seconds = report.stages.seconds
    built_s = seconds["read"] + seconds["build"]
    return {
        "chunks_per_s": round(report.chunks / built_s, 1),
        "build_ratio": round(cutting_s / built_s, 3),
        "cutting_chunks_per_s": round(report.chunks / cutting_s, 1),
        "model_calls": report.cost.texts,
        "read_s": round(seconds["read"], 2),
        "build_s": round(seconds["build"], 2),
        "hnsw_s": round(seconds["index"], 2),
        "verify_s": round(seconds["verify"], 2),
        "switch_ms": round(seconds["switch"] * 1000, 1),
        "rollback_ms": round(rollback_s * 1000, 1),
        "documents": report.documents,
        "chunks": report.chunks,
    }


def _show(_what: str, _done: int, _total: int) -> None:
    """Show no progress."""


def _documents() -> list[Document]:
    documents: list[Document] = []
    chunks = 0
    for document in document_writes(PROJECT, WordwiseCounter(TokenCounter(tokenizer_path(None)))):
        documents.append(document)
        chunks += len(document[1].chunks)
        if chunks >= CHUNKS:
            break
    return documents


async def _fill(tools: OperatorTools, documents: Sequence[Document]) -> None:
    """Store documents and their changes as a worker and an archiver would."""
    live = await tools.store.generation(PROJECT)
    writer = BulkWriter(tools.database, live.project_id, live)
    for start in range(0, len(documents), DOCUMENTS_PER_WRITE):
        part = documents[start : start + DOCUMENTS_PER_WRITE]
        await writer.write([write for _, write in part])
        await tools.archive.append(PROJECT, [_logged(*document) for document in part])


def _logged(content: str, write: DocumentWrite) -> LoggedChange:
    change = DocumentChange(project=PROJECT, uri=write.uri, content=content)
    return LoggedChange(write.log_position, DocumentChanged(data=change))


async def _cut_alone(pool: ChunkingPool, documents: Sequence[Document]) -> float:
    """Return the seconds of cutting all documents."""
    sources = [Source(write.uri, text, "code", "python") for text, write in documents]
    started = perf_counter()
    await pool.cut(sources, LIMIT_TOKENS)
    return perf_counter() - started
