"""Minutes of steady load on a worker that stays, beside a second one that is killed repeatedly.

The bulk lane gets 200 edits of 20,000 notes a second, the live lane 5 changes a second, and 5
questions a second are asked. Streams are trimmed every minute, and the archive is compacted every
five. The memory of the worker that stays is observed: ``rss_slope_mb_per_hour`` is the slope of a
line through the second half of its samples. At the end ``failed`` questions, ``unseen`` changes
(acknowledged, but not returned by the next question) and ``wrong`` notes (stored in another version
than the last published one) must be 0.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import statistics
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from time import monotonic

import asyncpg

from bench.backlog import is_drained, open_redis
from bench.corpus import questions
from bench.documents import new_note, notes
from bench.figures import Report, percentile
from bench.processes import usage_by_role
from bench.stack import Stack, bench_stack
from bench.traffic import Traffic, under_traffic
from events.client.client import Client
from events.models import DocumentChange, DocumentChanged, content_hash
from events.names import GROUPS, Lane
from events.streams.backlog import ARCHIVERS
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.child_process import ChildProcess

__all__ = ["measure"]

PROJECT = "soak"
NOTES = 20_000
EDITS_PER_SECOND = 200
CHANGES_PER_SECOND = 5.0
QUESTIONS_PER_SECOND = 5.0
KILLS = 4
SAMPLE_SECONDS = 5.0
_AT_ONCE = 50
_PATIENCE = timedelta(minutes=10)
_WORKER = {
    "HEADRACE_MODEL": HASHING_MODEL,
    "HEADRACE_STREAM_RETENTION": "PT1M",
    "HEADRACE_RETENTION": '{"compaction_interval": "PT5M"}',
}

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Sample:
    """Memory in MB at ``seconds`` after the start."""

    seconds: float
    worker: float
    parsers: float
    redis: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s  worker {self.worker:6.1f} MB  parsers {self.parsers:5.1f} MB"
            f"  Redis {self.redis:6.1f} MB"
        )


@dataclass
class _Edits:
    """Notes that are edited at a steady rate, and the hash of each one's last published content."""

    client: Client
    hashes: dict[str, str] = field(default_factory=dict)
    published: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def fill(self) -> None:
        """Publish each note once."""
        changes = notes(PROJECT, NOTES)
        while part := list(islice(changes, 1_000)):
            await self._publish(part)

    async def run(self) -> None:
        """Edit notes until stopped."""
        rng, uris, began = random.Random(17), list(self.hashes), monotonic()
        for number in itertools.count(1):
            if self.stopped.is_set():
                return
            chosen = rng.sample(uris, _AT_ONCE)
            await self._publish([new_note(PROJECT, uri, rng) for uri in chosen])
            due = began + number * _AT_ONCE / EDITS_PER_SECOND
            await asyncio.sleep(max(0.0, due - monotonic()))

    async def _publish(self, changes: Iterable[DocumentChanged]) -> None:
        published = list(changes)
        await self.client.publish_many(published, Lane.BULK)
        self.published += len(published)
        for change in published:
            self.hashes[change.data.uri] = content_hash(change.data.content or "")


async def measure(minutes: float = 5.0, print_line: Print = print) -> Report:
    """Soak for ``minutes``; ``print_line`` is called with a line each minute and for each kill."""
    async with (
        bench_stack() as stack,
        Client.connect(stack.redis_url) as client,
        stack.worker(**_WORKER) as steady_worker,
    ):
        edits, samples = _Edits(client), list[_Sample]()
        await edits.fill()
        await _wait_until_settled(stack)
        traffic = _traffic(client)
        async with under_traffic(traffic), _editing(edits):
            await _watch(stack, steady_worker.pid, minutes * 60, samples, print_line)
        settled_s = await _wait_until_settled(stack)
        wrong = await _count_wrong(stack, edits.hashes)
    return Report(
        "soak",
        {
            "minutes": minutes,
            "changes": edits.published + len(traffic.receipts),
            "questions": len(traffic.answers),
            "kills": KILLS,
            "failed": len(traffic.failures),
            "unseen": len(traffic.unseen),
            "wrong": wrong,
            "settled_s": round(settled_s, 1),
            "ask_p50_ms": round(statistics.median(traffic.times_ms), 1),
            "ask_p95_ms": round(percentile(traffic.times_ms, 95), 1),
            **_memory(samples),
        },
    )


def _traffic(client: Client) -> Traffic:
    return Traffic(
        client,
        PROJECT,
        _live_changes(),
        itertools.cycle(questions(2_000)),
        CHANGES_PER_SECOND,
        QUESTIONS_PER_SECOND,
    )


def _live_changes() -> Iterator[DocumentChanged]:
    """Yield upserts and deletes of a thousand documents, for ever."""
    rng = random.Random(19)
    for number in itertools.count():
        if number % 10 == 9:
            uri = f"live/{rng.randrange(1_000)}.md"
            yield DocumentChanged(data=DocumentChange(project=PROJECT, uri=uri, change="delete"))
        else:
            yield new_note(PROJECT, f"live/{rng.randrange(1_000)}.md", rng)


@asynccontextmanager
async def _editing(edits: _Edits) -> AsyncIterator[None]:
    running = asyncio.create_task(edits.run())
    try:
        yield
    finally:
        edits.stopped.set()
        await running


async def _watch(
    stack: Stack, steady_worker: int, seconds: float, samples: list[_Sample], print_line: Print
) -> None:
    """Sample memory continuously, and kill a second worker at even intervals."""
    began = monotonic()
    for number in range(1, KILLS + 2):
        async with stack.worker(**_WORKER) as targets:
            while monotonic() - began < seconds * number / (KILLS + 1):
                await asyncio.sleep(SAMPLE_SECONDS)
                samples.append(_sample(steady_worker, monotonic() - began))
                if len(samples) % 12 == 1:
                    print_line(str(samples[-1]))
            if number <= KILLS:
                _kill(targets)
                print_line(f"{monotonic() - began:6.0f} s  a worker was killed")


def _kill(worker: ChildProcess) -> None:
    os.kill(worker.pid, signal.SIGKILL)


def _sample(steady_worker: int, seconds: float) -> _Sample:
    usage = usage_by_role()
    worker = next(process for process in usage["worker"] if process.pid == steady_worker)
    redis = sum(process.rss_bytes for process in usage["redis"])
    return _Sample(seconds, worker.rss_bytes / 1e6, worker.children_rss_bytes / 1e6, redis / 1e6)


async def _wait_until_settled(stack: Stack) -> float:
    """Wait until everything is indexed and archived; return the seconds."""
    began = monotonic()
    async with asyncio.timeout(_PATIENCE.total_seconds()), open_redis(stack) as redis:
        while not (  # noqa: ASYNC110  # other processes do the work
            await is_drained(redis, GROUPS) and await is_drained(redis, ARCHIVERS)
        ):
            await asyncio.sleep(0.2)
    return monotonic() - began


async def _count_wrong(stack: Stack, hashes: dict[str, str]) -> int:
    """Count notes whose stored content is not the last published one."""
    owner = await asyncpg.connect(stack.owner_database_url)
    try:
        rows = await owner.fetch("SELECT uri, content_hash FROM documents WHERE NOT deleted")
    finally:
        await owner.close()
    stored = {row["uri"]: row["content_hash"] for row in rows}
    return sum(stored.get(uri) != expected for uri, expected in hashes.items())


def _memory(samples: list[_Sample]) -> dict[str, float]:
    half = samples[len(samples) // 2 :]
    slope, _ = statistics.linear_regression(
        [sample.seconds / 3600 for sample in half], [sample.worker for sample in half]
    )
    return {
        "rss_first_mb": round(samples[0].worker, 1),
        "rss_half_mb": round(half[0].worker, 1),
        "rss_last_mb": round(half[-1].worker, 1),
        "rss_most_mb": round(max(sample.worker for sample in samples), 1),
        "rss_slope_mb_per_hour": round(slope, 1),
        "parsers_most_mb": round(max(sample.parsers for sample in samples), 1),
        "redis_most_mb": round(max(sample.redis for sample in samples), 1),
    }
