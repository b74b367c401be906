"""Clients and stores connected to the servers named by the settings.

Modules of Postgres are imported where they are needed: a question is answered without them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from events.client.operator_client import OperatorClient
from events.client.publisher import ContentStore
from events.models import ContentReference
from events.names import Names
from events.outbox import Outbox
from events.server.connection import check_server, connect
from events.signatures import SigningKey
from gateway.servers import require_database
from runtime.errors import ConfigurationError, Unavailable, UsageError
from runtime.settings import Settings

if TYPE_CHECKING:
    from store.generations.catalog import Projects, Recipe
    from store.postgres.pool import Database
    from store.store import Store

__all__ = [
    "check_signing_key",
    "names_of",
    "open_client",
    "open_database",
    "open_gateway",
    "open_publisher",
    "open_redis",
    "open_store",
    "projects_of",
    "store_of",
]


def names_of(settings: Settings) -> Names:
    """Stream and key names of the deployment."""
    return Names(settings.stream_prefix, settings.partitions)


@asynccontextmanager
async def open_redis(settings: Settings) -> AsyncIterator[Redis]:
    """Connect to Redis, for commands that read the streams."""
    redis = connect(settings.redis_url)
    try:
        yield redis
    finally:
        await redis.aclose()


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Store]:
    """Open the store with the role of the workers.

    Raises:
        ConfigurationError: HEADRACE_DATABASE_URL is missing, or the schema isn't the one expected.
        Unavailable: Postgres can't be reached.
    """
    async with open_database(settings) as database:
        yield store_of(database, settings)


@asynccontextmanager
async def open_database(settings: Settings, role: str = "") -> AsyncIterator[Database]:
    """Connect to Postgres with ``role``, by default that of the workers; raises as ``open_store``.

    Postgres and Redis must belong to the same deployment. This is not checked if Redis can't be
    reached.
    """
    from processors.deployment import compare  # noqa: PLC0415  # see above
    from store.postgres.pool import Database  # noqa: PLC0415

    require_database(settings)
    database = await Database.open(
        settings.database_url, role=role or settings.worker_role, max_size=4
    )
    try:
        with contextlib.suppress(Unavailable):
            async with open_redis(settings) as redis:
                await compare(redis, database, settings)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def open_client(
    settings: Settings, content_store: ContentStore | None = None, outbox: Outbox | None = None
) -> AsyncIterator[OperatorClient]:
    """Open a client. With a store, it also publishes content that is too big for an event.

    With an outbox, it can publish durably.

    Raises:
        Unavailable: Redis can't be reached. This is raised at once, without the client's retries.
        ConfigurationError: Redis evicts keys, so that streams could vanish.
    """
    async with open_redis(settings) as redis:
        await check_server(redis)
    client = OperatorClient.connect(
        settings.redis_url,
        prefix=settings.stream_prefix,
        partitions=settings.partitions,
        inline_limit_bytes=settings.inline_content_bytes,
        content_store=content_store,
        outbox=outbox,
        signing_key=settings.signing_key.get_secret_value() or None,
    )
    async with client:
        yield client


@asynccontextmanager
async def open_publisher(
    settings: Settings, *, durable: bool = False
) -> AsyncIterator[OperatorClient]:
    """Open a client that also publishes big content, and durably, if Postgres is configured.

    Raises:
        ConfigurationError: ``durable`` is set, but Postgres is not configured.
    """
    if durable and not settings.database_url:
        raise ConfigurationError("--durable keeps events in Postgres", "set HEADRACE_DATABASE_URL")
    async with AsyncExitStack() as exits:
        store: Store | None = None
        outbox: Outbox | None = None
        if settings.database_url:
            from store.outbox import PostgresOutbox  # noqa: PLC0415  # see above

            database = await exits.enter_async_context(open_database(settings))
            store = store_of(database, settings)
            outbox = PostgresOutbox(database, projects_of(database, settings))
        yield await exits.enter_async_context(open_client(settings, store, outbox))


async def check_signing_key(
    settings: Settings, project: str, database: Database | None = None
) -> None:
    """Check that the project accepts changes signed with the key of the settings.

    Connects to Postgres unless a ``database`` is given.

    Raises:
        UsageError: the project requires signed changes, and the key is missing or not active.
        ConfigurationError: the setting is not a key.
        Unavailable: Postgres can't be reached.
    """
    from store.generations.catalog import Projects  # noqa: PLC0415  # see above
    from store.keys.publisher_keys import PublisherKeys  # noqa: PLC0415

    async with open_database(settings) if database is None else nullcontext(database) as database:
        wanted = await PublisherKeys(database, Projects(database)).active_ids(project)
    if not wanted:
        return
    text = settings.signing_key.get_secret_value()
    if not text:
        raise UsageError(
            f"{project} requires signed changes", "set HEADRACE_SIGNING_KEY to one of its keys"
        )
    key_id = SigningKey.parse(text).id
    if key_id not in wanted:
        raise UsageError(
            f"HEADRACE_SIGNING_KEY holds {key_id}, which is not an active key of {project}",
            f"use one of {', '.join(sorted(wanted))}",
        )


class _Contents:
    """Content store of a gateway; it is opened for the first content that is too big for an event.

    Its modules are slow to import, and most gateways never need them.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._store: Store | None = None

    async def put(self, project: str, content: str | bytes) -> ContentReference:
        """Store content under its hash."""
        if self._store is None:
            self._store = await asyncio.to_thread(store_of, self._database, self._settings)
        return await self._store.put(project, content)


@asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[tuple[OperatorClient, Database]]:
    """Open the client and the database of a gateway, with its role.

    Raises:
        Unavailable: Redis or Postgres can't be reached.
        ConfigurationError: the servers belong to two deployments, or the schema isn't the expected
            one.
    """
    from store.postgres.roles import GATEWAY  # noqa: PLC0415  # see above

    async with (
        open_database(settings, GATEWAY) as database,
        open_client(settings, _Contents(database, settings)) as client,
    ):
        yield client, database


def projects_of(database: Database, settings: Settings) -> Projects:
    """Projects of a deployment, which can also be created."""
    from store.generations.catalog import Projects  # noqa: PLC0415  # see above

    return Projects(database, lambda: _recipe(settings))


def store_of(database: Database, settings: Settings) -> Store:
    """Store on an open database."""
    from store.store import Store  # noqa: PLC0415  # slow; questions don't need it

    return Store(database, _recipe(settings))


def _recipe(settings: Settings) -> Recipe:
    from processors.recipes import recipe_of  # noqa: PLC0415  # slow; questions don't need it

    return recipe_of(settings)
