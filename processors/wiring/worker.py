"""Composition root of the pipelines: builds them from the settings, and closes them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from events.client.outcomes import Outcomes
from events.heartbeats import Heartbeats
from events.models import Kind
from events.names import Names
from events.rate_limits import RateLimiter
from events.streams.chunked import ChunkedStreams
from events.streams.replies import Replies
from events.streams.trim import trim_queries
from events.streams.watermark import read_watermark
from processors.answering.freshness import Freshness
from processors.answering.pipeline import Answering
from processors.answering.query_vectors import QueryVectors
from processors.answering.results import Assembler
from processors.archiving.housekeeping import Archiving
from processors.chunking.sandbox.pool import ChunkingPool
from processors.chunking.types import CountTokens
from processors.content import KeptContents
from processors.deployment import DeploymentWatch
from processors.embedders import Embedders, tokenizer_path
from processors.embedding.keyword_precedence import Precedence
from processors.embedding.live import LiveEmbedding
from processors.embedding.pipeline import Embedding
from processors.embedding.requests import VectorRequests
from processors.embedding.single_flight import SharedEmbedding
from processors.embedding.stage import VectorStage
from processors.indexing.pipeline import Indexing
from processors.indexing.preparation import Cutter, Preparer, Resolver, VectorStep
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Reporter
from processors.indexing.vectors import EmbeddingStep
from processors.limits import Limits
from processors.recipes import RecipeNotices, chooses_models, model_options, rate_limits
from processors.rejections import Burial
from processors.wiring.archiver import archiving_of
from processors.wiring.servers import Servers, deployment_watch, open_servers
from runtime.cores import parser_processes
from runtime.errors import Retryable
from runtime.settings import Settings
from store.generations.catalog import Recipe
from store.postgres.schema_watch import SchemaWatch
from store.search.maintenance import Maintenance
from store.search.search import Search
from store.store import Store

__all__ = ["WAITING_PER_WORKING", "Services", "open_services"]

log = structlog.get_logger(__name__)

WAITING_PER_WORKING = 3
"""Questions that may wait for a change to be indexed, for each question being answered."""

_START_PATIENCE = timedelta(seconds=10)
_EMBEDDING_ROLES = frozenset({"embedder", "answerer"})


@dataclass(frozen=True)
class _Foundation:
    """Servers, models and parsers, ready for use."""

    settings: Settings
    servers: Servers
    embedders: Embedders
    pool: ChunkingPool


@asynccontextmanager
async def _open_foundation(settings: Settings) -> AsyncIterator[_Foundation]:
    """Open what the pipelines share; it is closed in reverse order. Models are not started."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(open_servers(settings))
        options = model_options(settings)
        rate_limiter = RateLimiter(servers.redis, servers.names, rate_limits(settings))
        embedders = Embedders(options, servers.recipe, servers.store.model_width, rate_limiter)
        stack.push_async_callback(embedders.close)
        pool = ChunkingPool(
            processes=parser_processes(settings),
            timeout=settings.chunking_limits.timeout,
            memory_bytes=settings.chunking_limits.memory_bytes,
            max_chunks=settings.chunking_limits.chunks,
            tokenizer_path=tokenizer_path(settings.model_directory),
        )
        await stack.enter_async_context(pool)
        yield _Foundation(settings, servers, embedders, pool)


@asynccontextmanager
async def open_services(
    settings: Settings, roles: Collection[str], ending: asyncio.Event | None = None
) -> AsyncIterator[Services]:
    """Build all pipelines, and start models for the roles that need them.

    A model that does not respond delays vectors only. Once ``ending`` is set, questions stop
    waiting for changes.

    Raises:
        ConfigurationError: versions, roles, models or settings do not match.
        Unavailable: Redis or Postgres cannot be reached.
    """
    async with _open_foundation(settings) as base:
        servers = base.servers
        if not _EMBEDDING_ROLES.isdisjoint(roles):
            await _start_models(base.embedders, servers.recipe)
        sharing = SharedEmbedding(base.embedders, servers.pending)
        precedence = Precedence()
        reader = await base.embedders.loaded(servers.recipe.model_of(Kind.TEXT))
        notices = RecipeNotices(servers.recipe if chooses_models(settings) else None)
        outcomes = Outcomes(servers.redis, servers.names)
        replies = Replies(servers.redis, servers.names)
        yield Services(
            names=servers.names,
            indexing=_indexing(
                base, notices, outcomes, sharing if "embedder" in roles else None, precedence
            ),
            embedding=Embedding(VectorStage(servers.pending, sharing, precedence), outcomes),
            vector_requests=VectorRequests(servers.redis, servers.names, servers.pending),
            answering=_answering(base, notices, replies, reader.count_tokens, ending),
            burial=Burial(servers.store, servers.pending, servers.key_ring, outcomes, replies),
            archiving=archiving_of(servers, settings),
            embedders=base.embedders,
            heartbeats=Heartbeats(servers.redis, servers.names),
            maintenance=Maintenance(
                servers.database,
                settings.owner_database_url or None,
                exact_chunks=settings.vector_search.exact_chunks,
            ),
            schema_watch=SchemaWatch(servers.database),
            deployment_watch=deployment_watch(servers, settings),
            store=servers.store,
            count_tokens=reader.count_tokens,
            trim=partial(trim_queries, servers.redis, servers.names),
        )


async def _start_models(embedders: Embedders, recipe: Recipe) -> None:
    for model in recipe.model_names:
        await embedders.loaded(model)
    try:
        async with asyncio.timeout(_START_PATIENCE.total_seconds()):
            await embedders.start()
    except (Retryable, TimeoutError) as error:
        log.warning("models.not_ready", reason=str(error) or "no answer yet")


def _indexing(
    base: _Foundation,
    notices: RecipeNotices,
    outcomes: Outcomes,
    sharing: SharedEmbedding | None,
    precedence: Precedence,
) -> Indexing:
    preparer = Preparer(
        Resolver(
            KeptContents(base.servers.store, base.servers.archive).fetch,
            base.settings.max_document_bytes,
        ),
        Cutter(base.pool, base.embedders),
        _vectors(base, sharing),
    )
    servers = base.servers
    limits = Limits.of(base.settings)
    reporter = Reporter(outcomes, ChunkedStreams(servers.redis, servers.names))
    return Indexing(
        servers.store,
        servers.key_ring,
        preparer,
        notices,
        reporter,
        servers.pending,
        precedence,
        Realigner(servers.redis, servers.names, servers.store),
        limits,
    )


def _vectors(base: _Foundation, sharing: SharedEmbedding | None) -> VectorStep:
    """Build the step that makes vectors before a write.

    Over Kafka it makes all of them: the second stage needs streams in Redis.
    """
    store = base.servers.store
    if base.settings.broker_url:
        return EmbeddingStep(store.known_vectors, base.embedders)
    return LiveEmbedding(store, sharing)


def _answering(
    base: _Foundation,
    notices: RecipeNotices,
    replies: Replies,
    count_tokens: CountTokens,
    ending: asyncio.Event | None,
) -> Answering:
    servers = base.servers
    search = Search(servers.database, ef_search=base.settings.vector_search.ef_search)
    return Answering(
        search,
        QueryVectors(base.embedders),
        Freshness(
            base.servers.store,
            base.servers.pending,
            partial(read_watermark, base.servers.redis, base.servers.names),
            most_waiting=base.settings.query_concurrency * WAITING_PER_WORKING,
            ending=ending,
        ),
        Assembler(search, count_tokens),
        notices,
        replies,
        min(base.settings.default_deadline, base.settings.limits.query_deadline),
        base.settings.query_concurrency,
        Limits.of(base.settings),
    )


@dataclass(frozen=True)
class Services:
    """The pipelines of a worker, the archiving, and its maintenance tasks."""

    names: Names
    indexing: Indexing
    embedding: Embedding
    vector_requests: VectorRequests
    answering: Answering
    burial: Burial
    archiving: Archiving
    embedders: Embedders
    heartbeats: Heartbeats
    maintenance: Maintenance
    schema_watch: SchemaWatch
    deployment_watch: DeploymentWatch
    store: Store
    count_tokens: CountTokens
    trim: Callable[[], Awaitable[int]]
