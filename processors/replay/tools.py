"""Dependencies of replays, built from the settings. Models and parsers start when first used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from redis.asyncio import Redis

from events.names import Names
from events.rate_limits import RateLimiter
from processors.admission import Admission
from processors.chunking.sandbox.pool import ChunkingPool
from processors.content import Contents
from processors.embedders import Embedders, full_name, tokenizer_path
from processors.embedding.requests import VectorRequests
from processors.embedding.single_flight import SharedEmbedding
from processors.embedding.stage import VectorStage
from processors.recipes import model_options, rate_limits
from processors.replay.builder import Workshop
from processors.replay.project_log import ProjectLog
from processors.wiring.servers import open_servers
from runtime.cores import parser_processes
from runtime.settings import Settings
from store.archive import Archive
from store.documents.pending import PendingVectors
from store.generations.catalog import Generation
from store.generations.document_positions import DocumentPositions
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR
from store.projects import Projects
from store.search.maintenance import Maintenance
from store.search.vector_indexes import VectorIndexes
from store.store import Store

__all__ = ["Tools", "open_tools", "project_log", "request_vectors", "workshop"]

_MOST_WAITING = 10_000


@dataclass(frozen=True)
class Tools:
    """Servers, models and parsers. ``full_name`` returns the name that recipes use for a model."""

    settings: Settings
    names: Names
    redis: Redis
    database: Database
    projects: Projects
    store: Store
    pending: PendingVectors
    document_positions: DocumentPositions
    archive: Archive
    admission: Admission
    indexes: VectorIndexes
    maintenance: Maintenance
    embedders: Embedders
    pool: ChunkingPool
    full_name: Callable[[str], str]


@asynccontextmanager
async def open_tools(settings: Settings) -> AsyncIterator[Tools]:
    """Connect, and close everything in reverse order.

    Raises:
        ConfigurationError: versions, roles or settings are unsuitable.
        Unavailable: Redis or Postgres can't be reached.
    """
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(open_servers(settings, OPERATOR))
        options = model_options(settings)
        rate_limiter = RateLimiter(servers.redis, servers.names, rate_limits(settings))
        embedders = Embedders(
            options, stored_width=servers.store.model_width, rate_limiter=rate_limiter
        )
        stack.push_async_callback(embedders.close)
        pool = _pool(settings)
        stack.push_async_callback(pool.close)
        database, owner_url = servers.database, settings.owner_database_url or None
        exact_chunks = settings.vector_search.exact_chunks
        yield Tools(
            settings=settings,
            names=servers.names,
            redis=servers.redis,
            database=database,
            projects=servers.projects,
            store=servers.store,
            pending=servers.pending,
            document_positions=DocumentPositions(database),
            archive=servers.archive,
            admission=servers.admission,
            indexes=VectorIndexes(database, owner_url, exact_chunks),
            maintenance=Maintenance(database, owner_url, exact_chunks=exact_chunks),
            embedders=embedders,
            pool=pool,
            full_name=partial(full_name, options=options),
        )


def project_log(tools: Tools, project: str) -> ProjectLog:
    """Build a reader for the log of a project; nothing is read yet."""
    return ProjectLog(project, tools.archive, tools.redis, tools.names, tools.admission.admitted)


def workshop(tools: Tools, project: str) -> Workshop:
    """Build the dependencies for building generations of a project."""
    return Workshop(
        tools.database,
        tools.store,
        tools.pending,
        Contents(project, tools.archive),
        tools.embedders,
        tools.pool,
        tools.settings.max_document_bytes,
    )


async def request_vectors(tools: Tools, project: str, generation: Generation) -> None:
    """Request the vectors that a generation lacks after it became live.

    Its last changes were written without vectors of new texts, because writers were waiting. With
    Kafka no embedder runs; the vectors are made here instead.

    Raises:
        Unavailable: Redis, Postgres or, with Kafka, a model cannot be reached.
    """
    if tools.settings.broker_url:
        sharing = SharedEmbedding(tools.embedders, tools.pending)
        await VectorStage(tools.pending, sharing).run_all(project, generation.id)
        return
    waiting = await tools.pending.waiting(generation, _MOST_WAITING)
    if waiting:
        requests = VectorRequests(tools.redis, tools.names, tools.pending)
        await requests.request(project, generation, waiting)


def _pool(settings: Settings) -> ChunkingPool:
    """Build the parsers of a replay. It runs beside workers whose parsers are mostly idle."""
    return ChunkingPool(
        processes=parser_processes(settings),
        timeout=settings.chunking_limits.timeout,
        memory_bytes=settings.chunking_limits.memory_bytes,
        max_chunks=settings.chunking_limits.chunks,
        tokenizer_path=tokenizer_path(settings.model_directory),
    )
