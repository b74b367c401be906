"""Composition root of a worker: runs its agents and background tasks until ``stop`` is set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

import structlog
from redis.exceptions import RedisError

from events.heartbeats import Heartbeats
from events.names import BRIDGE, Names, Topic
from events.server.acl import require_reading
from events.server.connection import connect
from events.transport import App, run_app
from processors.admission import Limits
from processors.agents import batch_agent
from processors.bridge.bridge import run_bridge
from processors.handlers import SUBSCRIPTIONS, handlers_of
from processors.heartbeat import HeartbeatSender
from processors.wiring.pipelines import (
    WAITING_PER_WORKING,
    archiving_of,
    transport_options,
)
from processors.wiring.servers import connections_of, deployment_watch, open_servers
from processors.wiring.services import Services, open_services
from runtime.errors import HeadraceError
from runtime.lifespan import IdlePace, OwnedTasks
from runtime.settings import Settings
from store.postgres.roles import ANSWERER, WORKER
from store.postgres.schema_watch import SchemaWatch

__all__ = ["ROLES", "run_worker"]

log = structlog.get_logger(__name__)

ROLES: dict[str, frozenset[Topic]] = {
    "indexer": frozenset({Topic.CHANGED_LIVE, Topic.CHANGED_BULK, Topic.JUDGED}),
    "embedder": frozenset({Topic.CHUNKED_LIVE, Topic.CHUNKED_BULK}),
    "answerer": frozenset({Topic.QUERY}),
    "archiver": frozenset(),
}
"""Roles of a worker, and the topics that each role's agents read.

A bridge is not among them: it reads from Kafka, and does nothing else.
"""

LIVE_BATCH = 16
LIVE_PATIENCE = timedelta(milliseconds=5)
BULK_PATIENCE = timedelta(milliseconds=100)
EMBEDDING_BATCH = 16
"""Documents per bulk batch of the embedder. It works on one batch more than an indexer does: while
one is read and one is written, a third keeps the model's threads busy."""

TRIM_EVERY = timedelta(minutes=1)

TASK_PATIENCE = timedelta(seconds=2)
"""Grace period of background tasks at shutdown. An index build can take minutes; if it is
interrupted, the next worker starts it again."""


async def run_worker(
    settings: Settings,
    *,
    stop: asyncio.Event,
    only: Collection[str] = tuple(ROLES),
    ready: Callable[[], None] | None = None,
) -> None:
    """Handle events until ``stop`` is set. ``ready`` is called once agents receive events.

    Raises:
        ConfigurationError: versions, roles, models or settings do not match.
        Unavailable: Redis or Postgres cannot be reached at the start.
    """
    if set(only) == {BRIDGE}:
        await run_bridge(settings, stop, ready)
        return
    settings = _with_least_role(settings, only)
    if not any(ROLES[role] for role in only):
        await _archive(settings, stop, ready)
        return
    async with open_services(settings, only, stop) as services:
        await _require_reading(settings, services.names, only)
        app = _app(settings, services, only)

        def count() -> int:
            return sum(app.counts().values())

        tasks = OwnedTasks(stop, timeout=TASK_PATIENCE)
        tasks.start("schema", services.schema_watch.run(stop))
        tasks.start("deployment", services.deployment_watch.run(stop))
        if "indexer" in only:
            tasks.start("maintenance", services.maintenance.run(stop, count))
            tasks.start("trimming of judgements", _trim(services.trim_judged, stop, count))
        if "embedder" in only:
            requests = services.vector_requests
            tasks.start("vector requests", requests.run(stop, settings.lease, count))
            tasks.start("contexts", services.contexts.run(stop))
            tasks.start("calibration", services.calibration.run(stop, count))
        if "answerer" in only:
            tasks.start("trimming", _trim(services.trim_queries, stop, count))
        if "archiver" in only:
            tasks.start("archiving", services.archiving.run(stop))
        if "indexer" in only and settings.read_database_url:
            notes = services.watermark_notes(count)
            tasks.start("watermark", notes.run(stop))
        tasks.start(
            "heartbeat",
            HeartbeatSender(
                services.heartbeats,
                only,
                app,
                (services.embedders, services.context_models, services.relevance),
            ).run(stop),
        )
        try:
            await run_app(app, stop, ready)
        finally:
            await tasks.close()


def _with_least_role(settings: Settings, only: Collection[str]) -> Settings:
    """Use the read-only role of Postgres for a worker that only answers queries."""
    if set(only) != {"answerer"} or settings.worker_role != WORKER:
        return settings
    return settings.model_copy(update={"worker_role": ANSWERER})


async def _require_reading(settings: Settings, names: Names, only: Collection[str]) -> None:
    """Raise ConfigurationError if this Redis user may not read: agents would retry forever."""
    redis = connect(settings.redis_url)
    try:
        await require_reading(redis, names, frozenset().union(*(ROLES[role] for role in only)))
    finally:
        await redis.aclose()


async def _archive(
    settings: Settings, stop: asyncio.Event, ready: Callable[[], None] | None
) -> None:
    """Run only the archiver, without loading models."""
    async with open_servers(settings, connections=connections_of(["archiver"])) as servers:
        tasks = OwnedTasks(stop, timeout=TASK_PATIENCE)
        tasks.start("schema", SchemaWatch(servers.database).run(stop))
        tasks.start("deployment", deployment_watch(servers, settings).run(stop))
        tasks.start("archiving", archiving_of(servers, settings).run(stop))
        heartbeats = Heartbeats(servers.redis, servers.names)
        tasks.start("heartbeat", HeartbeatSender(heartbeats, ["archiver"]).run(stop))
        try:
            if ready is not None:
                ready()
            await stop.wait()
        finally:
            await tasks.close()


def _app(settings: Settings, services: Services, roles: Collection[str]) -> App:
    app = App(
        "headrace",
        broker=settings.redis_url,
        options=transport_options(settings, services.names),
        on_dead=services.rejections,
    )
    for topic in sorted(frozenset().union(*(ROLES[role] for role in roles))):
        _subscribe(app, topic, services, settings)
    return app


def _subscribe(app: App, topic: Topic, services: Services, settings: Settings) -> None:
    event = SUBSCRIPTIONS[topic]
    size, patience, concurrency = _pace(topic, settings)
    batch_agent(
        app,
        topic,
        decode=Limits.of(settings).decoder(event),
        handle=handlers_of(services)[event],
        max_size=size,
        within=patience,
        concurrency=concurrency,
        wait=services.embedders.available if topic in ROLES["embedder"] else None,
    )


def _pace(topic: Topic, settings: Settings) -> tuple[int, timedelta, int]:
    """Batch size, longest wait for a full batch, and number of concurrent batches."""
    if topic is Topic.QUERY:
        return 1, timedelta(), settings.query_concurrency * (1 + WAITING_PER_WORKING)
    if topic.is_live:
        return LIVE_BATCH, LIVE_PATIENCE, settings.concurrency
    if topic in ROLES["embedder"]:
        return EMBEDDING_BATCH, BULK_PATIENCE, settings.concurrency + 1
    return settings.batch_documents, BULK_PATIENCE, settings.concurrency


async def _trim(
    trim: Callable[[], Awaitable[int]], stop: asyncio.Event, count: Callable[[], int]
) -> None:
    pace = IdlePace(TRIM_EVERY, count)
    while not stop.is_set():
        try:
            await trim()
        except (HeadraceError, RedisError) as error:
            log.warning("queries.trim_failed", error=str(error))
        await pace.pause(stop)
