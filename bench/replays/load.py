"""Questions and changes while 50,000 chunks are replayed, promoted and rolled back.

``load_ratio`` is the median time of an answer during a replay with another chunking, divided by
that of the same questions to an idle deployment. ``failed``, ``mixed`` (answers with a chunk of
another generation than the one they name) and ``unseen`` (changes that were acknowledged, but not
returned by the next question) must be 0.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import asyncpg

from bench.corpus import python_files, questions
from bench.figures import Report, percentile
from bench.stack import Stack, bench_stack
from bench.traffic import Traffic, under_traffic
from events.client.client import Client
from events.models import DocumentChange, DocumentChanged, QueryAnswer
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import ConfigurationError

__all__ = ["measure"]

PROJECT = "stdlib"
CHUNKS = 50_000
CHUNKING = "1:200"
IDLE_SECONDS = 20.0
CHANGES_PER_SECOND = 5.0
QUESTIONS_PER_SECOND = 20.0
QUESTIONS = 2_000
EDITED_CHARACTERS = 8_000
DOCUMENTS_AT_ONCE = 200
_PATIENCE = timedelta(minutes=20)


async def measure() -> Report:
    """Fill an index from the log, query it idle, then while it is replayed and rolled back.

    The idle phase follows a first replay, whose vector index covers all chunks. One built by
    maintenance may leave out a fourth of them.
    """
    async with (
        bench_stack() as stack,
        stack.worker(HEADRACE_MODEL=HASHING_MODEL),
        Client.connect(stack.redis_url) as client,
        stack.owner() as owner,
    ):
        chunks = await _fill(client, owner)
        await _indexed(owner)
        await _replay(stack)
        idle = _traffic(client, changes_per_second=0.0)
        async with under_traffic(idle):
            await asyncio.sleep(IDLE_SECONDS)
        busy = _traffic(client, changes_per_second=CHANGES_PER_SECOND)
        async with under_traffic(busy):
            replayed = await _replay(stack, "--chunking", CHUNKING)
            returned = await _replay(stack, "rollback")
        mixed = await _mixed(owner, busy.answers)
    figures = {
        "mixed": mixed,
        "failed": len(busy.failures),
        "unseen": len(busy.unseen),
        "answers": len(busy.answers),
        "changes": len(busy.receipts),
        "generations": len(busy.generations),
        "replay_s": round(sum(replayed["seconds"].values()), 1),
        "index_s": round(replayed["seconds"]["index"], 1),
        "rollback_s": returned["seconds"],
        "chunks": chunks,
        "replayed_chunks": replayed["chunks"],
    }
    return Report("replay-load", _times(idle, busy) | figures)


def _times(idle: Traffic, busy: Traffic) -> dict[str, float]:
    p50 = statistics.median(idle.times_ms)
    return {
        "load_ratio": round(statistics.median(busy.times_ms) / p50, 3),
        "idle_p50_ms": round(p50, 2),
        "idle_p99_ms": round(percentile(idle.times_ms, 99), 2),
        "load_p50_ms": round(statistics.median(busy.times_ms), 2),
        "load_p99_ms": round(percentile(busy.times_ms, 99), 2),
    }


def _traffic(client: Client, changes_per_second: float) -> Traffic:
    return Traffic(
        client,
        PROJECT,
        _edits(),
        itertools.cycle(questions(QUESTIONS)),
        changes_per_second,
        QUESTIONS_PER_SECOND,
    )


def _edits() -> Iterator[DocumentChanged]:
    """Yield small files of the corpus, each time with another line at their end."""
    rng = random.Random(13)
    files = [(uri, text) for uri, text in python_files() if len(text) < EDITED_CHARACTERS]
    for number in itertools.count():
        uri, text = rng.choice(files)
        yield _change(f"copy-0/{uri}", f"{text}\n# edit {number}\n")


async def _fill(client: Client, owner: asyncpg.Connection) -> int:
    """Index the standard library repeatedly under other names; return the number of chunks."""
    documents = (
        _change(f"copy-{copy}/{uri}", text)
        for copy in itertools.count()
        for uri, text in python_files()
    )
    while (stored := int(await owner.fetchval("SELECT count(*) FROM chunks"))) < CHUNKS:
        receipts = await client.publish_many(islice(documents, DOCUMENTS_AT_ONCE), Lane.BULK)
        await client.wait(receipts, _PATIENCE)
    return stored


async def _indexed(owner: asyncpg.Connection) -> None:
    """Wait until maintenance has built the vector index, or the idle phase would not be idle."""
    async with asyncio.timeout(_PATIENCE.total_seconds()):
        while not await owner.fetchval(  # noqa: ASYNC110  # another process builds it
            "SELECT count(*) FROM vector_indexes"
        ):
            await asyncio.sleep(1.0)


def _change(uri: str, content: str) -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project=PROJECT, uri=uri, content=content))


async def _replay(stack: Stack, *arguments: str) -> dict[str, Any]:
    """Run `headrace replay`; return its report.

    Raises:
        ConfigurationError: the replay failed, so its figures mean nothing; the message quotes it.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", "replay", *arguments),
        *("--project", PROJECT, "--json"),
        env={**os.environ, **stack.environment(), "HEADRACE_MODEL": HASHING_MODEL},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    if process.returncode != 0:
        raise ConfigurationError(f"the replay failed: {stderr.decode().strip()}")
    report: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return report


async def _mixed(owner: asyncpg.Connection, answers: Sequence[QueryAnswer]) -> int:
    """Count answers that contain a chunk of another generation than the one they name."""
    ids = {result.chunk_id for answer in answers for result in answer.results}
    query = "SELECT id, generation_id FROM chunks WHERE id = ANY($1::bigint[])"
    owners = dict(await owner.fetch(query, list(ids)))
    return sum(
        any(
            owners.get(result.chunk_id, answer.generation) != answer.generation
            for result in answer.results
        )
        for answer in answers
    )
