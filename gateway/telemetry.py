"""Metrics of the deployment, read from Redis and Postgres when they are scraped.

What can't be read, because a server is down or the role lacks a permission, is absent and never 0.
"""

from __future__ import annotations

import asyncio
import platform
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from time import monotonic

import asyncpg
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.heartbeats import Heartbeat, Heartbeats
from events.names import GROUPS, Names, Topic
from events.server.connection import read_memory
from events.streams.backlog import ARCHIVERS, Backlog, read_backlog
from gateway.status.snapshot import worker_row
from gateway.status.warnings import SILENT_SECONDS
from runtime import metrics
from runtime.errors import HeadraceError
from runtime.instruments import Family
from store.generations.catalog import Projects, listed
from store.postgres.pool import Database
from store.postgres.revision import head_revision

__all__ = ["CACHE_AGE", "DeploymentMetrics", "declare_build", "deployment_metrics"]

log = structlog.get_logger(__name__)

CACHE_AGE = timedelta(seconds=5)
"""Scrapes within this time share one reading."""

_READ_WITHIN = timedelta(seconds=4)
"""A part that takes longer is absent: a scrape is given up after ten seconds by default."""

_MOST_PROJECTS = 100

Values = Mapping[metrics.Gauge, Mapping[tuple[str, ...], float]]
"""Values of metrics by the values of their labels."""


class DeploymentMetrics:
    """Metrics of one deployment, cached for ``CACHE_AGE``.

    ``database`` is None if Postgres is not configured; then metrics of projects are absent.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        database: Database | None = None,
        cache_age: timedelta = CACHE_AGE,
    ) -> None:
        self._redis = redis
        self._names = names
        self._database = database
        self._cache_seconds = cache_age.total_seconds()
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._families: Sequence[Family] = ()

    async def families(self) -> Sequence[Family]:
        """Return the metrics that can be read; it raises nothing if a server is down."""
        async with self._lock:
            if self._read_at is None or monotonic() - self._read_at >= self._cache_seconds:
                self._families = await self._read()
                self._read_at = monotonic()
            return self._families

    async def _read(self) -> Sequence[Family]:
        readers: list[tuple[str, Callable[[], Awaitable[Values]]]] = [
            *((topic.value, self._stream_reader(topic, group)) for topic, group in GROUPS.items()),
            ("archive", self._archive),
            ("memory", self._memory),
            ("workers", self._workers),
            ("generations", self._generations),
        ]
        parts = await asyncio.gather(*(_try_to_read(name, read) for name, read in readers))
        merged: defaultdict[metrics.Gauge, dict[tuple[str, ...], float]] = defaultdict(dict)
        for part in parts:
            for gauge, values in part.items():
                merged[gauge] |= values
        return [gauge.family_of(values) for gauge, values in merged.items() if values]

    def _stream_reader(self, topic: Topic, group: str) -> Callable[[], Awaitable[Values]]:
        """Return a reader of one topic: a role may see the streams of some topics only."""

        async def read() -> Values:
            backlog = await read_backlog(self._redis, self._names, {topic: group})
            return {
                metrics.STREAM_LAG: _by_stream(backlog, _lag),
                metrics.STREAM_PENDING: _by_stream(backlog, lambda stream: stream.pending),
                metrics.STREAM_OLDEST_SECONDS: _by_stream(backlog, _oldest_seconds),
                metrics.STREAM_LENGTH: _by_stream(backlog, lambda stream: stream.length),
                metrics.DEAD_LETTER_ENTRIES: _by_stream(
                    backlog, lambda stream: stream.dead_letters
                ),
            }

        return read

    async def _archive(self) -> Values:
        backlog = await read_backlog(self._redis, self._names, ARCHIVERS)
        return {
            metrics.ARCHIVE_WAITING: _by_stream(backlog, _waiting),
            metrics.ARCHIVE_OLDEST_SECONDS: _by_stream(backlog, _oldest_seconds),
        }

    async def _memory(self) -> Values:
        memory = await read_memory(self._redis)
        values: dict[metrics.Gauge, dict[tuple[str, ...], float]]
        values = {metrics.REDIS_MEMORY_BYTES: {(): memory.used_bytes}}
        if memory.limit_bytes:
            values[metrics.REDIS_MEMORY_LIMIT_BYTES] = {(): memory.limit_bytes}
        return values

    async def _workers(self) -> Values:
        beats = await Heartbeats(self._redis, self._names).read()
        alive = [beat for beat in beats if beat.age.total_seconds() <= SILENT_SECONDS]
        values: defaultdict[metrics.Gauge, dict[tuple[str, ...], float]] = defaultdict(dict)
        for beat in alive:
            _add_worker(values, beat)
        return values

    async def _generations(self) -> Values:
        if self._database is None:
            return {}
        states: dict[tuple[str, ...], float] = {}
        projects = await Projects(self._database).all()
        for project, project_id in sorted(projects.items())[:_MOST_PROJECTS]:
            async with self._database.scope(project_id) as connection:
                for generation in await listed(connection, project_id):
                    states[project, str(generation.id), generation.state] = 1
        return {metrics.GENERATION_INFO: states}


async def deployment_metrics(deployment: DeploymentMetrics, accept: str = "") -> bytes:
    """Return the body of a scrape: the metrics of the deployment and those of this process.

    ``accept`` is the request's header; ``metrics.content_type(accept)`` is the body's media type.
    It raises nothing if a server is down.
    """
    families = await deployment.families()
    own = metrics.own_families(metrics.Scope.GATEWAY)
    return metrics.exposition([*families, *own], accept)


def declare_build() -> None:
    """Set ``headrace_build_info`` of a process of the gateway."""
    try:
        installed = version("headrace")
    except PackageNotFoundError:
        installed = "unknown"
    metrics.BUILD_INFO.set(
        1, version=installed, revision=head_revision(), python=platform.python_version()
    )


async def _try_to_read(name: str, read: Callable[[], Awaitable[Values]]) -> Values:
    try:
        async with asyncio.timeout(_READ_WITHIN.total_seconds()):
            return await read()
    except (
        HeadraceError,
        RedisError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        TimeoutError,
    ) as error:
        log.info("metrics.unreadable", part=name, error=str(error) or repr(error))
        return {}


def _by_stream(
    backlog: Sequence[Backlog], value: Callable[[Backlog], float | None]
) -> dict[tuple[str, ...], float]:
    """Values by topic and partition, without the unknown ones."""
    values = {(stream.topic.value, str(stream.partition)): value(stream) for stream in backlog}
    return {key: number for key, number in values.items() if number is not None}


def _lag(stream: Backlog) -> float | None:
    return stream.lag


def _waiting(stream: Backlog) -> float | None:
    return None if stream.lag is None else stream.lag + stream.pending


def _oldest_seconds(stream: Backlog) -> float:
    """Age of the oldest entry that waits; 0 if none waits, which is certain."""
    oldest = stream.oldest_unacknowledged
    return 0.0 if oldest is None else oldest.total_seconds()


def _add_worker(
    values: defaultdict[metrics.Gauge, dict[tuple[str, ...], float]], beat: Heartbeat
) -> None:
    """Add the values of one worker; those that it did not report are absent."""
    row = worker_row(beat)
    for role in row.roles:
        values[metrics.WORKER_INFO][row.worker, role, row.version] = 1
    if row.memory_bytes is not None:
        values[metrics.WORKER_MEMORY_BYTES][row.worker,] = row.memory_bytes
    if "loop_lag_s" in beat.state:
        values[metrics.WORKER_LOOP_LAG_SECONDS][row.worker,] = row.loop_lag_s
    for topic, events in row.in_work.items():
        values[metrics.WORKER_IN_WORK][row.worker, topic] = events
    circuits = values[metrics.CIRCUIT_STATE]
    for circuit in beat.state.get("circuits") or ():
        state = metrics.CIRCUIT_VALUES.get(circuit["state"])
        if state is not None:
            key = (str(circuit["model"]),)
            circuits[key] = max(state, circuits.get(key, 0.0))
