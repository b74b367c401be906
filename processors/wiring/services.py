"""Services of a worker: pipelines and background tasks, built from the settings and closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from events.client.outcomes import Outcomes
from events.heartbeats import Heartbeats
from events.models import Kind
from events.names import Names, Topic
from events.streams.answer_records import AnswerRecords
from events.streams.groups import read_watermark
from events.streams.replies import Replies
from events.streams.trim import trim_queries
from processors.answering.calibration import CalibrationUpkeep
from processors.answering.pipeline import Answering
from processors.answering.relevance import RelevanceStep
from processors.archiving.housekeeping import Archiving
from processors.chunking.types import CountTokens
from processors.contexts.maintenance import ContextMaintenance
from processors.contexts.models import ContextModels
from processors.deployment import DeploymentWatch
from processors.embedders.registry import Embedders
from processors.embedding.keyword_precedence import Precedence
from processors.embedding.pipeline import Embedding
from processors.embedding.requests import VectorRequests
from processors.embedding.single_flight import SharedEmbedding
from processors.embedding.stage import VectorStage
from processors.indexing.pipeline import Indexing
from processors.judgements import JudgementPipeline
from processors.recipes import RecipeNotices, chooses_models
from processors.rejections import RejectionReporter
from processors.wiring.foundation import build_limits, open_foundation
from processors.wiring.pipelines import answering_of, archiving_of, indexing_of
from processors.wiring.servers import connections_of, deployment_watch, open_replica
from runtime.errors import Retryable
from runtime.settings import Settings
from store.documents.watermarks import WatermarkNotes
from store.generations.catalog import Recipe
from store.generations.judgements import Judgements
from store.postgres.schema_watch import SchemaWatch
from store.search.maintenance import Maintenance
from store.search.search import Search
from store.store import Store

__all__ = ["Services", "open_services"]

log = structlog.get_logger(__name__)

_START_PATIENCE = timedelta(seconds=10)
_EMBEDDING_ROLES = frozenset({"embedder", "answerer"})


@asynccontextmanager
async def open_services(
    settings: Settings, roles: Collection[str], ending: asyncio.Event | None = None
) -> AsyncIterator[Services]:
    """Build all pipelines, and start models for the roles that need them.

    A model that does not respond delays vectors only. Once ``ending`` is set, questions stop
    waiting for changes. Questions are answered from the replica of the settings, if there is one.

    Raises:
        ConfigurationError: versions, roles, models or settings do not match.
        Unavailable: Redis or Postgres cannot be reached.
    """
    async with (
        open_foundation(settings, connections=connections_of(roles)) as base,
        open_replica(settings, base.stamp) if "answerer" in roles else nullcontext() as replica,
    ):
        await base.pool.start()
        if "answerer" in roles:
            await base.relevance.load()
        if not _EMBEDDING_ROLES.isdisjoint(roles):
            await _start_models(base.embedders, base.recipe)
        sharing = SharedEmbedding(base.embedders, base.pending)
        precedence = Precedence()
        reader = await base.embedders.loaded(base.recipe.model_of(Kind.TEXT))
        notices = RecipeNotices(base.recipe if chooses_models(settings) else None)
        outcomes = Outcomes(base.redis, base.names)
        yield Services(
            names=base.names,
            indexing=indexing_of(
                base, notices, outcomes, sharing if "embedder" in roles else None, precedence
            ),
            embedding=Embedding(VectorStage(base.pending, sharing, precedence), outcomes),
            vector_requests=VectorRequests(base.redis, base.names, base.pending),
            contexts=ContextMaintenance(
                base.database, base.projects, base.context_stage(sharing, precedence)
            ),
            answering=answering_of(base, reader.count_tokens, notices, ending, replica),
            judgements=JudgementPipeline(
                AnswerRecords(base.redis, base.names), base.projects, Judgements(base.database)
            ),
            rejections=RejectionReporter(
                base.store,
                base.pending,
                base.key_ring,
                outcomes,
                Replies(base.redis, base.names),
            ),
            archiving=archiving_of(base, settings),
            embedders=base.embedders,
            context_models=base.context_models,
            relevance=base.relevance,
            calibration=CalibrationUpkeep(
                base.database,
                base.projects,
                Search(base.database, ef_search=settings.vector_search.ef_search),
                base.embedders,
            ),
            heartbeats=Heartbeats(base.redis, base.names),
            watermark_notes=partial(
                WatermarkNotes, base.database, partial(read_watermark, base.redis, base.names)
            ),
            maintenance=Maintenance(
                base.database,
                settings.owner_database_url or None,
                exact_chunks=settings.vector_search.exact_chunks,
                limits=build_limits(settings),
            ),
            schema_watch=SchemaWatch(
                base.database if replica is None or set(roles) != {"answerer"} else replica
            ),
            deployment_watch=deployment_watch(base, settings),
            store=base.store,
            count_tokens=reader.count_tokens,
            trim_queries=partial(trim_queries, base.redis, base.names),
            trim_judged=partial(trim_queries, base.redis, base.names, topic=Topic.JUDGED),
        )


async def _start_models(embedders: Embedders, recipe: Recipe) -> None:
    for model in recipe.model_names:
        await embedders.loaded(model)
    try:
        async with asyncio.timeout(_START_PATIENCE.total_seconds()):
            await embedders.start()
    except (Retryable, TimeoutError) as error:
        log.warning("models.not_ready", reason=str(error) or "no answer yet")


@dataclass(frozen=True)
class Services:
    """The pipelines of a worker, the archiving, and its maintenance tasks."""

    names: Names
    indexing: Indexing
    embedding: Embedding
    vector_requests: VectorRequests
    contexts: ContextMaintenance
    answering: Answering
    judgements: JudgementPipeline
    rejections: RejectionReporter
    archiving: Archiving
    embedders: Embedders
    context_models: ContextModels
    relevance: RelevanceStep
    calibration: CalibrationUpkeep
    heartbeats: Heartbeats
    watermark_notes: Callable[[Callable[[], int]], WatermarkNotes]
    maintenance: Maintenance
    schema_watch: SchemaWatch
    deployment_watch: DeploymentWatch
    store: Store
    count_tokens: CountTokens
    trim_queries: Callable[[], Awaitable[int]]
    trim_judged: Callable[[], Awaitable[int]]
