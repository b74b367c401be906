"""Servers and workers of a command: configured, those of a running ``up``, or its own."""

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
    """Settings with the URLs of all servers; ``embedded`` lists those that this command started."""

    settings: Settings
    embedded: list[Part] = field(default_factory=list)


def configured(settings: Settings) -> Settings | None:
    """Settings with existing servers, configured or of a running ``up``; None if there are none."""
    if settings.redis_url:
        return settings
    return find_running(settings)


@asynccontextmanager
async def stack(
    settings: Settings, *, with_worker: bool = True, as_chosen: bool = False
) -> AsyncIterator[Settings]:
    """Provide settings with the URLs of running servers and the partitions of their deployment.

    With ``as_chosen``, the number of partitions stays that of the settings.

    If there are no servers, servers and a worker run under ``home`` until the context ends.

    Raises:
        UsageError: another command currently runs its own servers under ``home``.
        ConfigurationError: a server or the worker can't start, or the settings name a different
            number of partitions than the deployment has; the message gives the reason.
    """
    existing = configured(settings)
    if existing is not None:
        yield existing if as_chosen else await _with_partitions(existing)
        return
    async with own_servers(settings) as servers, AsyncExitStack() as exits:
        own = servers.settings
        if with_worker:
            log = own.home_directory / "worker.log"
            await exits.enter_async_context(worker(own, log=log))
        yield own if as_chosen else await _with_partitions(own)


async def _with_partitions(settings: Settings) -> Settings:
    """Fill in the number of partitions of the deployment.

    If Redis can't be reached, the settings stay unchanged: the command reports that in detail.
    """
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
    """Start embedded servers in place of those that are not configured; migrate the database.

    A configured database is migrated too if the URL of its owner is set; otherwise the workers
    check the schema.
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
    """Start the servers that are not configured concurrently; returns their URLs.

    They are appended to ``embedded``, and ``exits`` stops them.
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
    # wait for all, so that none is still starting when this function returns or raises
    for started in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(started, BaseException):
            raise started
        urls |= started
    return urls


async def _import_schema() -> dict[str, str]:
    """Import Alembic, which is slow, while the servers start."""
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
    """Create the home if necessary, close it to other users, and return it.

    Raises:
        ConfigurationError: the home can't be written to, or belongs to another user.
    """
    home = settings.home_directory
    corrected = make_private(home)
    if corrected:
        stderr().print(corrected, markup=False)
    return home


def require_database(settings: Settings) -> Settings:
    """Check that the settings name a database, for commands that read Postgres.

    Raises:
        ConfigurationError: they don't.
    """
    if not settings.database_url:
        raise ConfigurationError(
            "HEADRACE_DATABASE_URL is not set, but HEADRACE_REDIS_URL is; set both, or neither"
            " to use the servers of `headrace up`"
        )
    return settings
