"""Composition root of a worker: reads the settings, builds everything, runs until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.connection import check_server, connect
from events.models import Kind
from events.names import Lane, Names, Topic
from events.outcomes import Outcomes
from events.replying import Replies
from events.transport import App, Options
from events.trimming import trim_queries
from events.watermark import read_watermark
from processors.agents import batch_agent
from processors.agents import run_worker as run_agents
from processors.answering.assembling import Assembler
from processors.answering.freshness import Freshness
from processors.answering.pipeline import Answering
from processors.answering.query_vectors import QueryVectors
from processors.burying import Burial
from processors.handlers import HANDLERS, SUBSCRIPTIONS
from processors.indexing.chunking.sandbox import ChunkingPool
from processors.indexing.cutting import Cutter
from processors.indexing.embedding import EmbeddingStep
from processors.indexing.pipeline import Indexing
from processors.indexing.resolving import Resolver
from processors.inference import Inference, ModelOptions, tokenizer_path
from processors.services import Services
from runtime.errors import ConfigurationError, HeadraceError
from runtime.lifespan import OwnedTasks
from runtime.settings import Settings
from store.database import Database
from store.maintenance import Maintenance
from store.search import Search
from store.store import Store

__all__ = ["ROLES", "open_services", "run_worker"]

log = structlog.get_logger(__name__)

ROLES: dict[str, frozenset[Topic]] = {
    "indexer": frozenset({Topic.CHANGED_LIVE, Topic.CHANGED_BULK}),
    "answerer": frozenset({Topic.QUERY}),
}
"""What a worker may be limited to, and the topics that each role reads."""

LIVE_BATCH = 16
LIVE_PATIENCE = timedelta(milliseconds=5)
BULK_PATIENCE = timedelta(milliseconds=100)
TRIM_EVERY = timedelta(minutes=1)

WAITING_PER_WORKING = 4
"""Questions taken for each one in work: the others may wait for a change to be indexed."""
CHORE_PATIENCE = timedelta(seconds=2)
"""An index build can take minutes; one that is interrupted is begun again by the next worker."""


async def run_worker(
    settings: Settings,
    *,
    stop: asyncio.Event,
    only: Collection[str] = tuple(ROLES),
    ready: Callable[[], None] | None = None,
) -> None:
    """Handle events until ``stop`` is set. ``ready`` is called once they flow.

    Raises:
        ConfigurationError: versions, roles, models or settings don't fit.
        Unavailable: Redis or Postgres can't be reached at the start.
    """
    async with open_services(settings) as services:
        app = _app(settings, services)
        for topic in sorted(frozenset().union(*(ROLES[role] for role in only))):
            _subscribe(app, topic, services, settings)
        chores = OwnedTasks(stop, timeout=CHORE_PATIENCE)
        if "indexer" in only:
            chores.start("maintenance", services.maintenance.run(stop))
        if "answerer" in only:
            chores.start("trimming", _trim(services, stop))
        try:
            await _run_agents(app, stop, ready)
        finally:
            await chores.close()


async def _run_agents(app: App, stop: asyncio.Event, ready: Callable[[], None] | None) -> None:
    flowing = asyncio.Event()

    async def announce() -> None:
        await flowing.wait()
        if ready is not None:
            ready()

    announcement = asyncio.create_task(announce())
    try:
        await run_agents(app, stop, flowing)
    finally:
        announcement.cancel()


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Both pipelines with everything below them, closed in reverse order.

    Raises:
        ConfigurationError: versions, roles, models or settings don't fit.
        Unavailable: Redis or Postgres can't be reached.
    """
    names = Names(settings.stream_prefix, settings.partitions)
    async with AsyncExitStack() as stack:
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        await check_server(redis)
        database = await Database.open(settings.database_url, role=settings.worker_role)
        stack.push_async_callback(database.close)
        inference = _inference(settings)
        stack.push_async_callback(inference.close)
        await inference.start()
        pool = ChunkingPool(
            processes=settings.chunking_processes,
            timeout=settings.chunking_timeout,
            memory_bytes=settings.chunking_memory_bytes,
            tokenizer_path=tokenizer_path(settings.model_directory),
        )
        await stack.enter_async_context(pool)
        yield _services(settings, names, redis, database, inference, pool)


def _inference(settings: Settings) -> Inference:
    """Raises ConfigurationError when a model is chosen for a kind that doesn't exist."""
    unknown = settings.models.keys() - set(Kind)
    if unknown:
        raise ConfigurationError(
            f"HEADRACE_MODELS names the unknown kind {min(unknown)}; there are: {', '.join(Kind)}"
        )
    options = ModelOptions(
        directory=settings.model_directory,
        threads=settings.model_threads,
        api_key=settings.model_api_key.get_secret_value(),
        base_url=settings.model_base_url,
        dimensions=settings.model_dimensions,
        timeout=settings.model_timeout,
        retries=settings.model_retries,
    )
    return Inference(settings.model, settings.models, options)


def _services(
    settings: Settings,
    names: Names,
    redis: Redis,
    database: Database,
    inference: Inference,
    pool: ChunkingPool,
) -> Services:
    store = Store(database)
    search = Search(database, ef_search=settings.hnsw_ef_search)
    outcomes, replies = Outcomes(redis, names), Replies(redis, names)
    count_tokens = inference.for_kind("text").count_tokens
    indexing = Indexing(
        store,
        Resolver(store, settings.max_document_bytes),
        Cutter(pool, inference),
        EmbeddingStep(store, inference),
        outcomes,
    )
    answering = Answering(
        search,
        QueryVectors(inference.models),
        Freshness(store, partial(read_watermark, redis, names)),
        Assembler(search, count_tokens),
        replies,
        settings.default_deadline,
        settings.query_concurrency,
    )
    return Services(
        indexing=indexing,
        answering=answering,
        burial=Burial(store, outcomes, replies),
        maintenance=Maintenance(
            database,
            settings.owner_database_url or None,
            exact_chunks=settings.exact_search_chunks,
        ),
        store=store,
        count_tokens=count_tokens,
        trim=partial(trim_queries, redis, names),
    )


def _app(settings: Settings, services: Services) -> App:
    return App(
        "headrace",
        broker=settings.broker_url or settings.redis_url,
        options=Options(
            prefix=settings.stream_prefix,
            partitions=settings.partitions,
            lease=settings.lease,
            max_deliveries=settings.max_deliveries,
            retry_delay=settings.retry_delay,
            shutdown_timeout=settings.shutdown_timeout,
        ),
        on_dead=services.burial,
    )


def _subscribe(app: App, topic: Topic, services: Services, settings: Settings) -> None:
    event = SUBSCRIPTIONS[topic]
    size, patience, concurrency = _pace(topic, settings)
    batch_agent(
        app,
        topic,
        decode=event.from_bytes,
        handle=partial(HANDLERS[event], services),
        max_size=size,
        within=patience,
        concurrency=concurrency,
    )


def _pace(topic: Topic, settings: Settings) -> tuple[int, timedelta, int]:
    """Batch size, how long to wait for a full one, and batches at once."""
    if topic is Topic.QUERY:
        return 1, timedelta(), settings.query_concurrency * WAITING_PER_WORKING
    if topic.lane is Lane.LIVE:
        return LIVE_BATCH, LIVE_PATIENCE, settings.concurrency
    return settings.batch_documents, BULK_PATIENCE, settings.concurrency


async def _trim(services: Services, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await services.trim()
        except (HeadraceError, RedisError) as error:
            log.warning("queries.trim_failed", error=str(error))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), TRIM_EVERY.total_seconds())
