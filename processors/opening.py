"""Composition root: builds what works on events from the settings, and closes it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from redis.asyncio import Redis

from events.connection import check_server, connect
from events.models import Kind
from events.names import Names
from events.outcomes import Outcomes
from events.replying import Replies
from events.republishing import Republishing
from events.trimming import trim_queries
from events.watermark import read_watermark
from processors.answering.assembling import Assembler
from processors.answering.freshness import Freshness
from processors.answering.pipeline import Answering
from processors.answering.query_vectors import QueryVectors
from processors.archiving.archiver import Archiver
from processors.archiving.contents import KeptContents
from processors.archiving.log_group import LogGroup
from processors.archiving.republishing import Republisher
from processors.archiving.running import Archiving
from processors.archiving.upkeep import Upkeep
from processors.burying import Burial
from processors.indexing.chunking.sandbox import ChunkingPool
from processors.indexing.chunking.types import CountTokens
from processors.indexing.cutting import Cutter
from processors.indexing.embedding import EmbeddingStep
from processors.indexing.pipeline import Indexing
from processors.indexing.preparing import Preparer
from processors.indexing.resolving import Resolver
from processors.inference import Inference, tokenizer_path
from processors.recipes import RecipeNotices, chooses_models, model_options, recipe_of
from processors.services import Services
from runtime.settings import Settings
from store.archive import Archive
from store.database import Database
from store.generations import Recipe
from store.maintenance import Maintenance
from store.outbox import PostgresOutbox
from store.projects import Projects
from store.search import Search
from store.store import Store

__all__ = ["open_services"]


@dataclass(frozen=True)
class _Foundation:
    """Servers, models and parsers, ready for use. ``recipe`` is that of the settings."""

    settings: Settings
    names: Names
    redis: Redis
    database: Database
    recipe: Recipe
    inference: Inference
    pool: ChunkingPool
    store: Store
    archive: Archive


@asynccontextmanager
async def _open_foundation(settings: Settings) -> AsyncIterator[_Foundation]:
    """What both pipelines stand on, closed in reverse order; its models are not started."""
    names = Names(settings.stream_prefix, settings.partitions)
    recipe = recipe_of(settings)
    async with AsyncExitStack() as stack:
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        await check_server(redis)
        database = await Database.open(settings.database_url, role=settings.worker_role)
        stack.push_async_callback(database.close)
        store = Store(database, recipe)
        inference = Inference(model_options(settings), recipe, store.model_width)
        stack.push_async_callback(inference.close)
        pool = ChunkingPool(
            processes=settings.chunking_processes,
            timeout=settings.chunking_timeout,
            memory_bytes=settings.chunking_memory_bytes,
            tokenizer_path=tokenizer_path(settings.model_directory),
        )
        await stack.enter_async_context(pool)
        archive = Archive(database, Projects(database, recipe), settings.archive_location)
        yield _Foundation(settings, names, redis, database, recipe, inference, pool, store, archive)


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Both pipelines with everything below them, the models of the settings started.

    Raises:
        ConfigurationError: versions, roles, models or settings don't fit.
        Unavailable: Redis or Postgres can't be reached.
    """
    async with _open_foundation(settings) as base:
        await base.inference.start()
        reader = await base.inference.for_kind(base.recipe, Kind.TEXT)
        notices = RecipeNotices(base.recipe if chooses_models(settings) else None)
        outcomes, replies = Outcomes(base.redis, base.names), Replies(base.redis, base.names)
        yield Services(
            indexing=_indexing(base, notices, outcomes),
            answering=_answering(base, notices, replies, reader.count_tokens),
            burial=Burial(base.store, outcomes, replies),
            archiving=_archiving(base),
            maintenance=Maintenance(
                base.database,
                settings.owner_database_url or None,
                exact_chunks=settings.exact_search_chunks,
            ),
            store=base.store,
            count_tokens=reader.count_tokens,
            trim=partial(trim_queries, base.redis, base.names),
        )


def _indexing(base: _Foundation, notices: RecipeNotices, outcomes: Outcomes) -> Indexing:
    preparer = Preparer(
        Resolver(KeptContents(base.store, base.archive).fetch, base.settings.max_document_bytes),
        Cutter(base.pool, base.inference),
        EmbeddingStep(base.store.known_vectors, base.inference),
    )
    return Indexing(base.store, preparer, notices, outcomes)


def _answering(
    base: _Foundation, notices: RecipeNotices, replies: Replies, count_tokens: CountTokens
) -> Answering:
    search = Search(base.database, ef_search=base.settings.hnsw_ef_search)
    return Answering(
        search,
        QueryVectors(base.inference),
        Freshness(base.store, partial(read_watermark, base.redis, base.names)),
        Assembler(search, count_tokens),
        notices,
        replies,
        base.settings.default_deadline,
        base.settings.query_concurrency,
    )


def _archiving(base: _Foundation) -> Archiving:
    settings = base.settings
    archiver = Archiver(
        base.database,
        settings.stream_prefix,
        LogGroup(base.redis, base.names),
        base.archive,
    )
    upkeep = Upkeep(
        base.redis,
        base.names,
        base.database,
        base.archive,
        stream_retention=settings.stream_retention,
        archive_retention=settings.archive_retention,
        compaction_interval=settings.archive_compaction_interval,
    )
    outbox = PostgresOutbox(base.database, Projects(base.database, base.recipe))
    republisher = Republisher(Republishing(base.redis, base.names), outbox)
    return Archiving(archiver, upkeep, republisher)
