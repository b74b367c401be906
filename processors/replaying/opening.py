"""What replays work with, built from the settings. Models and parsers start when first needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from redis.asyncio import Redis

from events.names import Names
from events.turns import Turns
from processors.admission import Admission
from processors.embedding.requesting import VectorRequests
from processors.embedding.sharing import SharedEmbedding
from processors.embedding.stage import VectorStage
from processors.indexing.chunking.sandbox import ChunkingPool
from processors.inference import Inference, full_name, tokenizer_path
from processors.recipes import model_options, rate_limits
from processors.replaying.building import Workshop
from processors.replaying.contents import Contents
from processors.replaying.log_reading import ProjectLog
from processors.servers import open_servers
from runtime.cores import parser_processes
from runtime.settings import Settings
from store.archive import Archive
from store.database import Database
from store.generations import Generation
from store.maintenance import Maintenance
from store.pending import PendingVectors
from store.projects import Projects
from store.roles import OPERATOR
from store.standings import Standings
from store.store import Store
from store.vector_indexes import VectorIndexes

__all__ = ["Tools", "open_tools", "project_log", "request_vectors", "workshop"]

_MOST_WAITING = 10_000


@dataclass(frozen=True)
class Tools:
    """Servers, models and parsers. ``full_name``: of a model, as recipes have it."""

    settings: Settings
    names: Names
    redis: Redis
    database: Database
    projects: Projects
    store: Store
    pending: PendingVectors
    standings: Standings
    archive: Archive
    admission: Admission
    indexes: VectorIndexes
    maintenance: Maintenance
    inference: Inference
    pool: ChunkingPool
    full_name: Callable[[str], str]


@asynccontextmanager
async def open_tools(settings: Settings) -> AsyncIterator[Tools]:
    """Connect, and close everything in reverse order.

    Raises:
        ConfigurationError: versions, roles or settings don't fit.
        Unavailable: Redis or Postgres can't be reached.
    """
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(open_servers(settings, OPERATOR))
        options = model_options(settings)
        turns = Turns(servers.redis, servers.names, rate_limits(settings))
        inference = Inference(options, stored_width=servers.store.model_width, turns=turns)
        stack.push_async_callback(inference.close)
        pool = _pool(settings)
        stack.push_async_callback(pool.close)
        database, owner_url = servers.database, settings.owner_database_url or None
        exact_chunks = settings.exact_search_chunks
        yield Tools(
            settings=settings,
            names=servers.names,
            redis=servers.redis,
            database=database,
            projects=servers.projects,
            store=servers.store,
            pending=servers.pending,
            standings=Standings(database),
            archive=servers.archive,
            admission=servers.admission,
            indexes=VectorIndexes(database, owner_url, exact_chunks),
            maintenance=Maintenance(database, owner_url, exact_chunks=exact_chunks),
            inference=inference,
            pool=pool,
            full_name=partial(full_name, options=options),
        )


def project_log(tools: Tools, project: str) -> ProjectLog:
    """The log of a project, unread."""
    return ProjectLog(project, tools.archive, tools.redis, tools.names, tools.admission.admitted)


def workshop(tools: Tools, project: str) -> Workshop:
    """Tools that generations of a project are built with."""
    return Workshop(
        tools.database,
        tools.store,
        tools.pending,
        Contents(project, tools.archive),
        tools.inference,
        tools.pool,
        tools.settings.max_document_bytes,
    )


async def request_vectors(tools: Tools, project: str, generation: Generation) -> None:
    """Ask the embedders for what a generation lacks that has just gone live.

    The last changes are written while writers wait, so without the vectors of their new texts.
    Over Kafka no embedder runs: then they are made here.

    Raises:
        Unavailable: Redis, Postgres or, over Kafka, a model cannot be reached.
    """
    if tools.settings.broker_url:
        sharing = SharedEmbedding(tools.inference, tools.pending)
        await VectorStage(tools.pending, sharing).run_all(project, generation.id)
        return
    waiting = await tools.pending.waiting(generation, _MOST_WAITING)
    if waiting:
        requests = VectorRequests(tools.redis, tools.names, tools.pending)
        await requests.request(project, generation, waiting)


def _pool(settings: Settings) -> ChunkingPool:
    """Parsers of a replay, which works beside workers whose parsers are mostly idle."""
    return ChunkingPool(
        processes=parser_processes(settings),
        timeout=settings.chunking_timeout,
        memory_bytes=settings.chunking_memory_bytes,
        max_chunks=settings.max_chunks_per_document,
        tokenizer_path=tokenizer_path(settings.model_directory),
    )
