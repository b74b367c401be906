"""Backlog of 100,000 small changes: time and cost until workers have processed it.

Servers and workers share the machine's cores, and questions are asked all the time. ``drained_s``
is the time from the readiness of the workers to the last acknowledgement, ``archived_s`` to the
last one of the archiver. ``cpu_s_per_1000`` is the processor time of workers, Postgres and Redis
together until both: unlike elapsed time, it hardly depends on the machine's other load. Vectors
come from hashing, so everything but the model is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from time import monotonic

from redis.asyncio import Redis

from bench.corpus import questions
from bench.documents import changes_of_all_kinds, notes
from bench.figures import Report, percentile
from bench.processes import Usage, peak_mb, usage_by_role
from bench.stack import Stack, bench_stack
from bench.traffic import Traffic, under_traffic
from events.client.client import Client
from events.client.publisher import Receipt
from events.models import DocumentChanged
from events.names import GROUPS, Lane, Names, Topic
from events.server.connection import connect
from events.streams.backlog import ARCHIVERS, read_backlog
from processors.embedders.hash_embedder import HASHING_MODEL

__all__ = ["drain", "is_drained", "measure", "open_redis"]

PROJECT = "backlog"
CHANGES = 100_000
MIXED_CHANGES = 20_000
WORKERS = 1
QUESTIONS_PER_SECOND = 4.0
_POLL_SECONDS = 0.25
_PATIENCE = timedelta(minutes=20)
_PUBLISHED_AT_ONCE = 5_000

Changes = Callable[[str, int], Iterator[DocumentChanged]]


@dataclass
class _Measurements:
    """Measurements while the backlog is processed."""

    drained_s: float = 0.0
    archived_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    worker_peak_mb: float = 0.0
    most_parser_rss_bytes: int = 0

    def update(self, usage: dict[str, list[Usage]]) -> None:
        """Update the measurements from the usage of the processes."""
        self.cpu_s = {
            role: sum(process.cpu_s for process in processes) for role, processes in usage.items()
        }
        for worker in usage.get("worker", []):
            self.worker_peak_mb = max(self.worker_peak_mb, peak_mb(worker.pid))
            self.most_parser_rss_bytes = max(self.most_parser_rss_bytes, worker.children_rss_bytes)


async def measure() -> Report:
    """Measure 100,000 new notes, then 20,000 changes of all kinds in another deployment."""
    figures = await drain(notes, CHANGES)
    mixed = await drain(changes_of_all_kinds, MIXED_CHANGES)
    names = ("changes", "changes_per_s", "cpu_s_per_1000", "ask_p95_ms")
    return Report("backlog", figures | {f"mixed_{name}": mixed[name] for name in names})


async def drain(kind: Changes, count: int, workers: int = WORKERS) -> dict[str, float]:
    """Measure one backlog with its own servers."""
    async with (
        bench_stack() as stack,
        Client.connect(stack.redis_url) as client,
        open_redis(stack) as redis,
    ):
        first = await _publish(client, kind(PROJECT, count))
        before = usage_by_role()
        async with AsyncExitStack() as running:
            for _ in range(workers):
                await running.enter_async_context(stack.worker(HEADRACE_MODEL=HASHING_MODEL))
            measurements, traffic = await _process(client, redis, first)
        for role, processes in before.items():
            measurements.cpu_s[role] -= sum(process.cpu_s for process in processes)
    return _figures(count, measurements, traffic)


async def _publish(client: Client, changes: Iterator[DocumentChanged]) -> Receipt:
    """Publish all changes; return the first receipt."""
    receipts: list[Receipt] = []
    while part := await client.publish_many(islice(changes, _PUBLISHED_AT_ONCE), Lane.BULK):
        receipts += part[:1]
    return receipts[0]


async def _process(client: Client, redis: Redis, first: Receipt) -> tuple[_Measurements, Traffic]:
    began, measurements = monotonic(), _Measurements()
    asked = itertools.cycle(questions(2_000))
    traffic = Traffic(client, PROJECT, iter(()), asked, 0.0, QUESTIONS_PER_SECOND)
    await client.wait([first], _PATIENCE)
    async with asyncio.timeout(_PATIENCE.total_seconds()), under_traffic(traffic):
        while not (measurements.drained_s and measurements.archived_s):
            await asyncio.sleep(_POLL_SECONDS)
            if not measurements.drained_s and await is_drained(redis, GROUPS):
                measurements.drained_s = monotonic() - began
            if not measurements.archived_s and await is_drained(redis, ARCHIVERS):
                measurements.archived_s = monotonic() - began
            measurements.update(usage_by_role())
    return measurements, traffic


async def is_drained(redis: Redis, groups: Mapping[Topic, str]) -> bool:
    """Return whether only questions wait."""
    backlogs = await read_backlog(redis, Names(), groups)
    return all(
        backlog.oldest_unacknowledged is None
        for backlog in backlogs
        if backlog.topic != Topic.QUERY
    )


def _figures(count: int, measurements: _Measurements, traffic: Traffic) -> dict[str, float]:
    cpu = {
        f"{role}_cpu_s_per_1000": round(seconds * 1000 / count, 3)
        for role, seconds in sorted(measurements.cpu_s.items())
    }
    return {
        "drained_s": round(measurements.drained_s, 1),
        "archived_s": round(measurements.archived_s, 1),
        "changes": count,
        "changes_per_s": round(count / measurements.drained_s, 1),
        "cpu_s_per_1000": round(sum(measurements.cpu_s.values()) * 1000 / count, 3),
        **cpu,
        "ask_p50_ms": round(statistics.median(traffic.times_ms), 1),
        "ask_p95_ms": round(percentile(traffic.times_ms, 95), 1),
        "asked": len(traffic.times_ms),
        "ask_failures": len(traffic.failures),
        "worker_rss_mb": measurements.worker_peak_mb,
        "parsers_rss_mb": round(measurements.most_parser_rss_bytes / 1e6, 1),
    }


@asynccontextmanager
async def open_redis(stack: Stack) -> AsyncIterator[Redis]:
    """Open a connection for the duration of the context."""
    redis = connect(stack.redis_url)
    try:
        yield redis
    finally:
        await redis.aclose()
