"""Servers and workers of a command: configured, those of a running ``up``, or started for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from events.deployment import check_partitions, read_stamp
from events.names import Names
from events.server.connection import connect
from gateway.output import stderr
from gateway.processes.supervisor import Part
from runtime.child_process import ChildProcess, Fork, command_of
from runtime.cores import model_threads, parser_processes
from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from runtime.embedded.server import DirectoryLock
from runtime.errors import ConfigurationError, Unavailable
from runtime.private import make_private
from runtime.settings import MODEL_SETTINGS, Settings
from runtime.worker_process import ServiceProcess, WorkerProcess, worker_process

__all__ = [
    "GATEWAY_PORT",
    "StartedServers",
    "announce",
    "announced_gateway",
    "announced_pid",
    "configured",
    "find_running",
    "owner_lock",
    "prepare_home",
    "require_database",
    "stack",
    "start_servers",
    "supervised_gateway",
    "supervised_workers",
    "worker",
]

GATEWAY_PORT = 8420

_FILE = "up.json"
_GATEWAY = "gateway_url"
_MODELS = "models"
_DATABASES = ("database_url", "owner_database_url")
_SHARED = ("redis_url", *_DATABASES)
_BOTH_OR_NEITHER = "set both, or neither to use the servers of `headrace up`"
_MARGIN = timedelta(seconds=5)
_LONGEST_MIGRATION = timedelta(minutes=30)


@dataclass(frozen=True)
class StartedServers:
    """Settings with the URLs of all servers; ``embedded`` lists those that this command started."""

    settings: Settings
    embedded: list[Part] = field(default_factory=list)


def configured(settings: Settings) -> Settings | None:
    """Settings with existing servers, configured or of a running ``up``; None if there are none.

    Raises:
        ConfigurationError: the settings name a database that the running ``up`` does not use.
    """
    if settings.redis_url:
        return settings
    running = find_running(settings)
    if running is not None:
        _check_databases(settings, running)
    return running


def _check_databases(settings: Settings, running: Settings | None) -> None:
    """Check that the settings name no database, except one that the running ``up`` uses."""
    for name in _DATABASES:
        url = getattr(settings, name)
        if url and url != getattr(running, name, ""):
            raise ConfigurationError(
                f"HEADRACE_REDIS_URL is not set, but HEADRACE_{name.upper()} is", _BOTH_OR_NEITHER
            )


@asynccontextmanager
async def stack(
    settings: Settings, *, with_worker: bool = True, keep_partitions: bool = False
) -> AsyncIterator[Settings]:
    """Provide settings with the URLs of running servers and the partitions of their deployment.

    With ``keep_partitions``, the number of partitions stays that of the settings.

    If there are no servers, servers and a worker run under ``home`` until the context ends.

    Raises:
        UsageError: another command currently runs its own servers under ``home``.
        ConfigurationError: a server or the worker can't start, or the settings name a database
            without Redis, or a different number of partitions than the deployment has; the
            message gives the reason.
    """
    existing = configured(settings)
    if existing is not None:
        yield existing if keep_partitions else await _with_partitions(existing)
        return
    _check_databases(settings, None)
    async with start_servers(settings) as servers, AsyncExitStack() as exits:
        started_settings = servers.settings
        if with_worker:
            log = started_settings.home_directory / "worker.log"
            await exits.enter_async_context(worker(started_settings, log=log))
        yield started_settings if keep_partitions else await _with_partitions(started_settings)


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
    partitions = check_partitions(stamp.partitions, settings.chosen_partitions, stamp.raises)
    return settings.model_copy(update={"partitions": partitions})


@asynccontextmanager
async def start_servers(
    settings: Settings, fork: Fork | None = None
) -> AsyncIterator[StartedServers]:
    """Start embedded servers in place of those that are not configured; migrate the database.

    A configured database is migrated too if the URL of its owner is set; otherwise the workers
    check the schema. With ``fork``, a migration takes no memory of this process.
    """
    home = prepare_home(settings)
    async with AsyncExitStack() as exits:
        embedded: list[Part] = []
        started_settings = settings.model_copy(update=await _start(settings, home, exits, embedded))
        if started_settings.owner_database_url:
            await _migrate(started_settings, fork)
        yield StartedServers(started_settings, embedded)


async def _migrate(settings: Settings, fork: Fork | None) -> None:
    """Apply the migrations that the database lacks.

    Alembic is imported only for that: it takes 0.3 s and 30 MB.
    """
    from store.postgres.revision import is_current  # noqa: PLC0415  # commands that only ask do without it

    if await is_current(settings.owner_database_url):
        return
    if fork is None:
        from store.postgres.schema import upgrade  # noqa: PLC0415

        await upgrade(settings.owner_database_url)
        return
    environment = {**os.environ, **_environment(settings, 1)}
    migration = ChildProcess(
        "the migration",
        [sys.executable, "-P", "-m", "gateway.main", "migrate"],
        log=settings.home_directory / "migration.log",
        environment=environment,
        fork=lambda output: fork(["migrate"], environment, output, signal.SIGTERM),
    )
    migration.start()
    try:
        if await migration.finish(_LONGEST_MIGRATION) != 0:
            migration.check()
    finally:
        await migration.stop(_MARGIN)


async def _start(
    settings: Settings, home: Path, exits: AsyncExitStack, embedded: list[Part]
) -> dict[str, str]:
    """Start the servers that are not configured concurrently; returns their URLs.

    They are appended to ``embedded``, and ``exits`` stops them.
    """
    starts: list[Awaitable[dict[str, str]]] = []
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
            "HEADRACE_DATABASE_URL is not set, but HEADRACE_REDIS_URL is",
            _BOTH_OR_NEITHER,
        )
    return settings


@contextmanager
def announce(settings: Settings, gateway_url: str = "") -> Iterator[None]:
    """Publish the servers of ``settings`` to other commands until the context ends."""
    path = settings.home_directory / _FILE
    announcement: dict[str, Any] = {"pid": os.getpid(), _GATEWAY: gateway_url}
    announcement |= {name: getattr(settings, name) for name in _SHARED}
    chosen = settings.model_fields_set & MODEL_SETTINGS
    announcement[_MODELS] = settings.model_dump(mode="json", include=chosen)
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)  # the URLs hold passwords
    draft.write_text(json.dumps(announcement))
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_running(settings: Settings) -> Settings | None:
    """Fill in the servers of a running ``up``, and its models if these settings choose none.

    So a new project has the models of ``up``, whichever shell publishes its first document. Returns
    None if none runs.
    """
    try:
        announcement = json.loads(_path_of(settings).read_text())
        is_alive = (
            "headrace" in (command := command_of(int(announcement["pid"]))) or "gateway" in command
        )
        urls: dict[str, Any] = {name: str(announcement[name]) for name in _SHARED}
    except (OSError, ValueError, KeyError):
        return None
    if not is_alive:
        return None
    if not settings.model_fields_set & MODEL_SETTINGS:
        chosen = announcement.get(_MODELS, {})
        urls |= {name: getattr(Settings(**chosen), name) for name in chosen}
    return settings.model_copy(update=urls)


def announced_pid(settings: Settings) -> int | None:
    """Process id of the ``up`` that was announced last. Returns None if none is announced."""
    try:
        return int(json.loads(_path_of(settings).read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def announced_gateway(settings: Settings) -> str | None:
    """Address of the gateway of a running ``up``. Returns None if none runs."""
    if find_running(settings) is None:
        return None
    try:
        return str(json.loads(_path_of(settings).read_text())[_GATEWAY]) or None
    except (OSError, ValueError, KeyError):
        return None


def owner_lock(home: Path) -> DirectoryLock:
    """Lock that a running ``up`` holds on its home, from start to end."""
    return DirectoryLock(home, "up.lock")


def _path_of(settings: Settings) -> Path:
    return settings.home_directory / _FILE


def worker(
    settings: Settings, *, log: Path | None = None
) -> AbstractAsyncContextManager[ChildProcess]:
    """Worker that uses the servers of ``settings``; without ``log``, it logs to our output.

    Raises (when entered):
        ConfigurationError: it is not ready in time, or ended; the message holds its last log lines.
    """
    return worker_process(
        environment=_environment(settings, 1), stop_timeout=_stop_timeout(settings), log=log
    )


def supervised_workers(
    settings: Settings, count: int, fork: Fork | None = None
) -> list[WorkerProcess]:
    """Workers, not yet started, that share the cores of this machine.

    Each logs to its own file in the home.
    """
    return [
        WorkerProcess(
            environment=_environment(settings, count),
            stop_timeout=_stop_timeout(settings),
            log=settings.home_directory / f"worker-{number}.log",
            name="the worker" if count == 1 else f"worker {number}",
            fork=fork,
        )
        for number in range(1, count + 1)
    ]


def supervised_gateway(settings: Settings, port: int, fork: Fork | None = None) -> ServiceProcess:
    """The gateway of ``up``, not yet started; it listens on loopback."""
    return ServiceProcess(
        ["serve", "--operator", "--port", str(port), "--any-port"],
        environment=_environment(settings, 1),
        stop_timeout=_MARGIN * 2,
        log=settings.home_directory / "gateway.log",
        name="the gateway",
        fork=fork,
    )


def _environment(settings: Settings, workers: int) -> dict[str, str]:
    return {
        "HEADRACE_REDIS_URL": settings.redis_url,
        "HEADRACE_DATABASE_URL": settings.database_url,
        "HEADRACE_OWNER_DATABASE_URL": settings.owner_database_url,
        "HEADRACE_MODEL_THREADS": str(model_threads(settings, workers)),
        "HEADRACE_CHUNKING_PROCESSES": str(parser_processes(settings, workers)),
    }


def _stop_timeout(settings: Settings) -> timedelta:
    return settings.shutdown_timeout + _MARGIN
