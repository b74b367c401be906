"""Servers and workers for a command: configured ones, those of a running ``up``, or its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from events.connection import connect
from events.deployment import check_partitions, read_stamp
from events.names import Names
from gateway.output import stderr
from gateway.running import find_running
from gateway.supervising import Part
from gateway.workers import worker
from processors.deployment import chosen_partitions
from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from runtime.errors import ConfigurationError, Unavailable
from runtime.private import make_private
from runtime.settings import Settings

__all__ = ["OwnServers", "configured", "own_servers", "prepare_home", "require_database", "stack"]


@dataclass(frozen=True)
class OwnServers:
    """``settings`` with the URLs of all servers; ``embedded``: those that were started here."""

    settings: Settings
    embedded: list[Part] = field(default_factory=list)


def configured(settings: Settings) -> Settings | None:
    """Settings with servers that are there already, by configuration or by a running ``up``."""
    if settings.redis_url:
        return settings
    return find_running(settings)


@asynccontextmanager
async def stack(
    settings: Settings, *, with_worker: bool = True, as_chosen: bool = False
) -> AsyncIterator[Settings]:
    """Settings with the URLs of running servers, and with the partitions of their deployment.

    ``as_chosen``: the number of partitions stays that of the settings.

    Where there are no servers, they and a worker run under ``home`` for as long as this lasts.

    Raises:
        UsageError: another command has its own servers under ``home`` at the moment.
        ConfigurationError: a server or the worker can't start, or the settings name another number
            of partitions than the deployment has; the message says why.
    """
    found = configured(settings)
    if found is not None:
        yield found if as_chosen else await _with_partitions(found)
        return
    async with own_servers(settings) as servers, AsyncExitStack() as exits:
        own = servers.settings
        if with_worker:
            log = own.home_directory / "worker.log"
            await exits.enter_async_context(worker(own, log=log))
        yield own if as_chosen else await _with_partitions(own)


async def _with_partitions(settings: Settings) -> Settings:
    """A Redis that is away is left to the command, which can say more about it."""
    redis = connect(settings.redis_url)
    try:
        stamp = await read_stamp(redis, Names(settings.stream_prefix))
    except Unavailable:
        return settings
    finally:
        await redis.aclose()
    if stamp is None:
        return settings
    partitions = check_partitions(stamp.partitions, chosen_partitions(settings))
    return settings.model_copy(update={"partitions": partitions})


@asynccontextmanager
async def own_servers(settings: Settings) -> AsyncIterator[OwnServers]:
    """Embedded servers in place of those that are not configured, and a migrated database.

    A configured database is migrated too where the URL of its owner is known; where it isn't, the
    workers check the schema.
    """
    home = prepare_home(settings)
    async with AsyncExitStack() as exits:
        embedded: list[Part] = []
        own = settings.model_copy(update=await _start(settings, home, exits, embedded))
        if own.owner_database_url:
            from store.schema import upgrade  # noqa: PLC0415 - see _import_schema

            await upgrade(own.owner_database_url)
        yield OwnServers(own, embedded)


async def _start(
    settings: Settings, home: Path, exits: AsyncExitStack, embedded: list[Part]
) -> dict[str, str]:
    """Start the servers that are not configured, all at the same time; returns their URLs.

    ``exits`` stops them, ``embedded`` gets them.
    """
    starts = [_import_schema()]
    if not settings.redis_url:
        redis = EmbeddedRedis(home)
        exits.push_async_callback(redis.stop)
        embedded.append(redis)
        starts.append(_start_redis(redis))
    if not settings.database_url:
        postgres = EmbeddedPostgres(home, worker_role=settings.worker_role)
        exits.push_async_callback(postgres.stop)
        embedded.append(postgres)
        starts.append(_start_postgres(postgres))
    urls: dict[str, str] = {}
    # all are waited for: the end of this function must not leave one that is still starting
    for started in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(started, BaseException):
            raise started
        urls |= started
    return urls


async def _import_schema() -> dict[str, str]:
    """Alembic takes a while to import: it is ready when the servers are."""
    await asyncio.to_thread(import_module, "store.schema")
    return {}


async def _start_redis(redis: EmbeddedRedis) -> dict[str, str]:
    url = await redis.start()
    if redis.note:
        stderr().print(redis.note, markup=False)
    return {"redis_url": url}


async def _start_postgres(postgres: EmbeddedPostgres) -> dict[str, str]:
    urls = await postgres.start()
    return {"database_url": urls.operator, "owner_database_url": urls.owner}


def prepare_home(settings: Settings) -> Path:
    """The home, made if it wasn't there, and closed to other users.

    Raises:
        ConfigurationError: nothing can be written there, or it belongs to another user.
    """
    home = settings.home_directory
    corrected = make_private(home)
    if corrected:
        stderr().print(corrected, markup=False)
    return home


def require_database(settings: Settings) -> Settings:
    """Make sure that a command which reads Postgres knows where it is.

    Raises:
        ConfigurationError: it doesn't.
    """
    if not settings.database_url:
        raise ConfigurationError(
            "HEADRACE_DATABASE_URL is not set, but HEADRACE_REDIS_URL is: set both, or neither"
            " to use the servers of `headrace up`"
        )
    return settings
