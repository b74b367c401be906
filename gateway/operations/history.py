"""History of a deployment by minute: changes from the ledger, the rest from samples."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redis.asyncio import Redis

from events.heartbeats import Heartbeats
from events.names import Names
from events.replays import QuestionCount
from events.server.connection import read_memory
from events.streams.backlog import read_backlog
from runtime.errors import HeadraceError
from runtime.intervals import until_tick
from store.documents.ledger import HandledChanges, handled_by_minute
from store.generations.inventory import Inventory
from store.postgres.pool import Database

__all__ = ["LONGEST_MINUTES", "History", "HistoryPoint"]

LONGEST_MINUTES = 24 * 60

_SAMPLED_MINUTES = 120
_SAMPLE_EVERY = timedelta(seconds=20)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Figures of one minute, which begins at ``at``.

    Freshness and changes are from the ledger, and 0 or None if nothing was handled. The others are
    samples of this process, of the last two hours at most: None for minutes without a sample, and
    the queue depth also while it is unknown.
    """

    at: datetime
    changes_per_s: float
    freshness_p50_ms: float | None
    freshness_p99_ms: float | None
    queue_depth: int | None
    questions_per_s: float | None
    redis_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Sample:
    at: datetime
    queue_depth: int | None
    questions: int
    memory_bytes: int


class History:
    """Samples of this process, and the changes of all projects from the ledger."""

    def __init__(self, redis: Redis, names: Names, database: Database) -> None:
        self._redis = redis
        self._names = names
        self._database = database
        self._inventory = Inventory(database)
        self._questions = QuestionCount()
        self._samples: deque[_Sample] = deque(
            maxlen=int(_SAMPLED_MINUTES * _MINUTE / _SAMPLE_EVERY)
        )

    async def run(self) -> None:
        """Take a sample every 20 seconds, until cancelled; a server that is down leaves a gap."""
        while True:
            with contextlib.suppress(HeadraceError):
                await self.sample()
            await asyncio.sleep(until_tick(_SAMPLE_EVERY).total_seconds())

    async def sample(self) -> None:
        """Take one sample.

        Raises:
            Unavailable: Redis can't be reached.
        """
        self._questions.add(await Heartbeats(self._redis, self._names).read())
        backlog = await read_backlog(self._redis, self._names)
        lags = [stream.lag for stream in backlog]
        depth = None
        if all(lag is not None for lag in lags):
            pending = sum(stream.pending for stream in backlog)
            depth = sum(lag or 0 for lag in lags) + pending
        memory = await read_memory(self._redis)
        total = self._questions.total
        self._samples.append(
            _Sample(datetime.now(UTC), depth, total.answered + total.failed, memory.used_bytes)
        )

    async def read(self, minutes: int) -> list[HistoryPoint]:
        """Figures of the last minutes, oldest first; the current minute, which is partial, is last.

        Raises:
            Unavailable: Postgres can't be reached.
        """
        until = datetime.now(UTC)
        current = until.replace(second=0, microsecond=0)
        begin = current - (min(minutes, LONGEST_MINUTES) - 1) * _MINUTE
        handled: defaultdict[datetime, list[HandledChanges]] = defaultdict(list)
        for project_id in (await self._inventory.projects()).values():
            for row in await self._handled(project_id, begin, until):
                handled[row.minute].append(row)
        samples = self._by_minute()
        points = []
        at = begin
        while at <= current:
            seconds = (until - at).total_seconds() if at == current else 60.0
            points.append(_point(at, max(1.0, seconds), handled[at], samples.get(at)))
            at += _MINUTE
        return points

    async def _handled(
        self, project_id: int, begin: datetime, until: datetime
    ) -> list[HandledChanges]:
        """Read the ledger in pieces of ten minutes, so that no transaction is long."""
        rows: list[HandledChanges] = []
        while begin <= until:
            end = begin + 10 * _MINUTE
            async with self._database.scope(project_id) as connection:
                rows += await handled_by_minute(connection, project_id, begin, end)
            begin = end
        return rows

    def _by_minute(self) -> dict[datetime, tuple[_Sample, float | None]]:
        """Last sample of each minute, and the questions per second since the one before."""
        minutes: dict[datetime, tuple[_Sample, float | None]] = {}
        former: _Sample | None = None
        last: _Sample | None = None
        for sample in self._samples:
            minute = sample.at.replace(second=0, microsecond=0)
            if minute not in minutes:
                former = last
            minutes[minute] = sample, _rate(former, sample)
            last = sample
        return minutes


def _rate(former: _Sample | None, sample: _Sample) -> float | None:
    if former is None:
        return None
    seconds = (sample.at - former.at).total_seconds()
    return round((sample.questions - former.questions) / seconds, 3) if seconds > 0 else None


def _point(
    at: datetime,
    seconds: float,
    handled: Sequence[HandledChanges],
    sampled: tuple[_Sample, float | None] | None,
) -> HistoryPoint:
    sample, questions_per_s = sampled or (None, None)
    fresh = sorted(
        (row.freshness_ms, row.changes) for row in handled if row.freshness_ms is not None
    )
    return HistoryPoint(
        at=at,
        changes_per_s=round(sum(row.changes for row in handled) / seconds, 3),
        freshness_p50_ms=_percentile(fresh, 0.50),
        freshness_p99_ms=_percentile(fresh, 0.99),
        queue_depth=None if sample is None else sample.queue_depth,
        questions_per_s=questions_per_s,
        redis_memory_bytes=None if sample is None else sample.memory_bytes,
    )


def _percentile(counted: Sequence[tuple[float, int]], share: float) -> float | None:
    """Smallest value that at least ``share`` of the counted values do not exceed."""
    wanted = share * sum(count for _, count in counted)
    seen = 0
    for value, count in counted:
        seen += count
        if seen >= wanted:
            return round(value, 1)
    return None
