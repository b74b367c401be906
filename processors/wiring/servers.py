"""Connections to Redis, Postgres and the archive, which every process needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import Redis

from events.deployment import Stamp
from events.names import Names
from events.server.connection import check_server, connect
from processors.admission import Admission, KeyRing
from processors.deployment import DeploymentWatch, claim_archive, compare, join, names_of
from processors.recipes import recipe_of
from runtime.errors import ConfigurationError, Unavailable
from runtime.settings import Settings
from store.archive import Archive
from store.documents.pending import PendingVectors
from store.generations.catalog import Projects, Recipe
from store.generations.document_positions import DocumentPositions
from store.keys.publisher_keys import PublisherKeys
from store.postgres.deployment import read_deployment
from store.postgres.pool import Database
from store.postgres.roles import ANSWERER
from store.store import Store

__all__ = ["Servers", "connections_of", "deployment_watch", "open_replica", "open_servers"]

_CONNECTIONS = {"indexer": 4, "embedder": 4, "answerer": 4, "archiver": 4}
"""Most connections to Postgres by role of a worker. Two of them may be held for minutes: by the
locks of a long task and of the archiver."""

_MOST_CONNECTIONS = 10
"""Of all roles together: a process has one thread of Python, which keeps few of them busy."""


@dataclass(frozen=True)
class Servers:
    """Redis, Postgres and the archive, the objects that access them, and the admission of changes.

    ``stamp`` identifies the deployment. ``recipe`` is built from the settings, for new projects.
    """

    stamp: Stamp
    names: Names
    redis: Redis
    database: Database
    recipe: Recipe
    projects: Projects
    store: Store
    pending: PendingVectors
    archive: Archive
    key_ring: KeyRing
    admission: Admission


def connections_of(roles: Collection[str]) -> int:
    """Most connections to Postgres of a worker with these roles."""
    return min(sum(_CONNECTIONS[role] for role in roles), _MOST_CONNECTIONS)


@asynccontextmanager
async def open_servers(
    settings: Settings, role: str = "", connections: int = _MOST_CONNECTIONS
) -> AsyncIterator[Servers]:
    """Connect to the servers and check them; connections are closed in reverse order.

    ``role`` is the role in Postgres; if it is empty, the workers' role is used. With a ``role``,
    statements have no time limit. ``connections`` is the most connections to Postgres.

    Raises:
        ConfigurationError: versions, roles or settings do not match, or the servers belong to
            different deployments.
        Unavailable: Redis or Postgres cannot be reached.
    """
    recipe = recipe_of(settings)
    async with AsyncExitStack() as stack:
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        await check_server(redis)
        database = await Database.open(
            settings.database_url,
            role=role or settings.worker_role,
            statement_timeout=None if role else settings.statement_timeout,
            max_size=connections,
        )
        stack.push_async_callback(database.close)
        only_reads = role or settings.worker_role == ANSWERER
        stamp = await (compare if only_reads else join)(redis, database, settings)
        if role:
            await claim_archive(database, settings, writes=False)
        projects = Projects(database, recipe)
        key_ring = KeyRing(PublisherKeys(database, projects).read)
        yield Servers(
            stamp=stamp,
            names=names_of(stamp),
            redis=redis,
            database=database,
            recipe=recipe,
            projects=projects,
            store=Store(database, recipe),
            pending=PendingVectors(database, projects),
            archive=Archive(database, projects, settings.archive_location),
            key_ring=key_ring,
            admission=Admission(key_ring, projects, DocumentPositions(database)),
        )


@asynccontextmanager
async def open_replica(settings: Settings, stamp: Stamp) -> AsyncIterator[Database | None]:
    """Connect to the replica of Postgres that questions are answered from, as an answerer.

    Yields None if the settings do not name one.

    Raises:
        ConfigurationError: the URL names several servers, or one of another deployment.
        Unavailable: the replica cannot be reached.
    """
    url = settings.read_database_url
    if not url:
        yield None
        return
    if _names_several(url):  # the watermark and the search must see the same server
        raise ConfigurationError("HEADRACE_READ_DATABASE_URL names several servers", "name one")
    try:
        replica = await Database.open(
            url,
            role=ANSWERER,
            statement_timeout=settings.statement_timeout,
            max_size=connections_of(["answerer"]),
        )
    except Unavailable as error:
        raise Unavailable(
            f"the replica does not respond: {error.message}",
            "check that it runs, and HEADRACE_READ_DATABASE_URL",
        ) from error
    try:
        if (await read_deployment(replica)).id != stamp.id:
            raise ConfigurationError(
                "HEADRACE_READ_DATABASE_URL names the database of another deployment",
                "set it to a replica of HEADRACE_DATABASE_URL",
            )
        yield replica
    finally:
        await replica.close()


def _names_several(url: str) -> bool:
    """Return whether a URL has a list of hosts; one that is invalid is refused later."""
    with suppress(ValueError):
        parts = urlsplit(url)
        hosts = [parts.netloc.rpartition("@")[2], *parse_qs(parts.query).get("host", [])]
        return any("," in host for host in hosts)
    return False


def deployment_watch(servers: Servers, settings: Settings) -> DeploymentWatch:
    """Build the watch that ends a worker when its deployment is changed."""
    writes = settings.worker_role != ANSWERER
    return DeploymentWatch(servers.redis, servers.names, servers.stamp, writes=writes)
