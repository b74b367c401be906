"""Questions and changes while 50,000 chunks are replayed, switched to, and rolled back.

``load_ratio`` is the median time of an answer while a replay by another chunking runs, divided by
that of the same questions to an idle deployment. ``failed``, ``mixed`` (answers with a chunk of
another generation than the one they name) and ``unseen`` (changes that were acknowledged, and not
found by the next question) must be 0.
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
from events.client import Client
from events.models import DocumentChange, DocumentChanged, QueryAnswer
from events.names import Lane
from processors.inference.hashing import HASHING_MODEL
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
    """Fill an index by way of the log, ask it idle, then while it is replayed and rolled back.

    Idle comes after a first replay, whose vector index covers all: upkeep's may leave a fourth out.
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
    """Small files of the corpus, each time with another line at their end."""
    rng = random.Random(13)
    files = [(uri, text) for uri, text in python_files() if len(text) < EDITED_CHARACTERS]
    for number in itertools.count():
        uri, text = rng.choice(files)
        yield _change(f"copy-0/{uri}", f"{text}\n# edit {number}\n")


async def _fill(client: Client, owner: asyncpg.Connection) -> int:
    """The standard library, again and again under other names; how many chunks that makes."""
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
    """Wait for upkeep to build the vector index, or idle would not be idle."""
    async with asyncio.timeout(_PATIENCE.total_seconds()):
        while not await owner.fetchval(  # noqa: ASYNC110  # another process builds it
            "SELECT count(*) FROM vector_indexes"
        ):
            await asyncio.sleep(1.0)


def _change(uri: str, content: str) -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project=PROJECT, uri=uri, content=content))


async def _replay(stack: Stack, *arguments: str) -> dict[str, Any]:
    """What `headrace replay` reports; the figures of a failed one mean nothing.

    Raises:
        ConfigurationError: it failed; the message is its own.
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
    """Answers with a chunk that another generation has than the one they name."""
    ids = {one.chunk_id for answer in answers for one in answer.results}
    query = "SELECT id, generation_id FROM chunks WHERE id = ANY($1::bigint[])"
    owners = dict(await owner.fetch(query, list(ids)))
    return sum(
        any(
            owners.get(one.chunk_id, answer.generation) != answer.generation
            for one in answer.results
        )
        for answer in answers
    )
