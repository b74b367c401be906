"""Checks of the environment in reading order: servers, clocks, models, storage, versions."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from redis.asyncio import Redis

from events.server.cluster import primaries_of
from events.server.connection import connect, redis_errors
from processors.doctor.checks.postgres_server import (
    check_postgres,
    postgres_facts,
    replica_conditions,
)
from processors.doctor.checks.redis_server import check_redis, redis_facts
from processors.doctor.findings import Condition
from processors.embedders.registry import ModelOptions, create_embedder
from processors.embedders.remote.provider import Endpoint, Provider
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import ConfigurationError, HeadraceError, Unavailable
from store.inspection.environment import local_directory, probe
from store.inspection.vectors import drop_orphans, indexes_by_name

__all__ = [
    "Environment",
    "check_archive_storage",
    "check_clocks",
    "check_models",
    "check_orphans",
    "check_packages",
    "check_room",
    "redis_clock",
]


@dataclass(frozen=True)
class Environment:
    """Addresses and options of the environment, taken from the settings.

    ``models``: full names of the models that the settings and the live generations use.
    ``replica_url`` is empty if there is no replica of Postgres.
    """

    redis_url: str
    database_url: str
    worker_role: str
    replica_url: str
    home: Path
    archive_url: str
    models: Iterable[str]
    options: ModelOptions

    async def decide(self) -> list[Condition]:
        """Judge every condition in reading order; an unreachable server is reported as one."""
        ahead: dict[str, float] = {}
        return [
            *await self._redis(ahead),
            *await self._postgres(ahead),
            *await replica_conditions(self.database_url, self.replica_url),
            check_clocks(ahead),
            *await check_models(self.models, self.options),
            *await self._storage(),
            *check_packages(),
        ]

    async def _redis(self, ahead: dict[str, float]) -> list[Condition]:
        try:
            redis = connect(self.redis_url)
            try:
                facts = await redis_facts(redis)
                ahead["Redis"] = await redis_clock(redis) - time.time()
            finally:
                await redis.aclose()
        except HeadraceError as error:
            return [_failed("redis", error, "check its settings")]
        return list(check_redis(facts))

    async def _postgres(self, ahead: dict[str, float]) -> list[Condition]:
        try:
            facts = await postgres_facts(self.database_url, self.worker_role)
        except HeadraceError as error:
            return [_failed("postgres", error, "check its settings")]
        ahead["Postgres"] = facts.clock - time.time()
        return list(check_postgres(facts))

    async def _storage(self) -> list[Condition]:
        conditions = [
            await check_archive_storage(self.archive_url),
            check_room("disk.home", self.home),
        ]
        directory = local_directory(self.archive_url)
        if directory is not None:
            conditions.append(check_room("disk.archive", directory))
        return conditions


def _failed(name: str, error: HeadraceError, remedy: str) -> Condition:
    """Condition of a part that failed; ``remedy`` replaces that of the error if it has none."""
    return Condition.problem(name, error.message, error.remedy or remedy)


_NOTICEABLE_S = 1.0
_HARMFUL_S = 30.0
_REMEDY = "let NTP set the clocks of all hosts"


async def redis_clock(redis: Redis) -> float:
    """Read the server's time in Unix seconds; of a cluster, that farthest from this host's.

    Raises:
        Unavailable: the server can't be reached.
    """
    offsets = []
    with redis_errors():
        for server in await primaries_of(redis):
            seconds, microseconds = await server.time()
            offsets.append(float(seconds) + float(microseconds) / 1e6 - time.time())
    return time.time() + max(offsets, key=abs)


def check_clocks(ahead_s: Mapping[str, float]) -> Condition:
    """Judge by how many seconds each server is ahead of this host; negative values are behind."""
    detail = ", ".join(f"{name} {_offset(seconds)}" for name, seconds in ahead_s.items())
    worst = max((abs(seconds) for seconds in ahead_s.values()), default=0.0)
    if worst >= _HARMFUL_S:
        return Condition.problem("clocks", f"{detail}: freshness and deadlines are wrong", _REMEDY)
    if worst >= _NOTICEABLE_S:
        return Condition.warning("clocks", detail, _REMEDY)
    return Condition.ok("clocks", detail or "not compared: no server was reachable")


def _offset(seconds: float) -> str:
    if abs(seconds) < _NOTICEABLE_S:
        return "in sync"
    return f"{abs(seconds):,.1f} s {'ahead' if seconds > 0 else 'behind'}"


_GIB = 2**30
_SCARCE_BYTES = 2 * _GIB
_EMPTY_BYTES = _GIB // 4


def check_room(name: str, directory: Path) -> Condition:
    """Judge the free space on the disk that contains, or would contain, a directory."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    detail = f"{free / _GIB:,.1f} GiB free at {there}"
    if free < _EMPTY_BYTES:
        return Condition.problem(name, detail, "free up space on this disk")
    if free < _SCARCE_BYTES:
        return Condition.warning(name, detail, "free up space on this disk soon")
    return Condition.ok(name, detail)


async def check_archive_storage(url: str) -> Condition:
    """Test that a file can be written to the archive, read back and removed."""
    name = "archive.storage"
    try:
        await asyncio.to_thread(probe, url)
    except (ConfigurationError, Unavailable) as error:
        return _failed(name, error, "check HEADRACE_ARCHIVE_URL")
    return Condition.ok(name, f"{url} can be read and written")


_LOCAL = "local/"
_DIMENSIONS = re.compile(r"@[1-9]\d*$")


async def check_models(models: Iterable[str], options: ModelOptions) -> list[Condition]:
    """Judge each model, given by full name; nothing is sent to remote models."""
    return [await asyncio.to_thread(_judge, model, options) for model in models]


def _judge(model: str, options: ModelOptions) -> Condition:
    name = f"model.{model}"
    try:
        if model.startswith(_LOCAL):
            create_embedder(model, options)
            return Condition.ok(name, "its weights are present and verified")
        plain = _DIMENSIONS.sub("", model)
        Provider(Endpoint(plain, options.api_key, options.base_url))
    except ConfigurationError as error:
        return _failed(name, error, "check HEADRACE_MODEL and HEADRACE_MODELS")
    return Condition.ok(name, "its provider is known, and a key is set")


_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("headrace", "faust-streaming", "redis", "asyncpg", "pgvector", "openvino", "litellm")


def check_packages() -> list[Condition]:
    """Judge the versions of Python and of the main packages."""
    return [_python(), _packages()]


def _python() -> Condition:
    text = platform.python_version()
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Condition.problem("python", text, "run headrace with Python 3.11 or later")
    return Condition.ok("python", text)


def _packages() -> Condition:
    versions = {name: _version(name) for name in _PACKAGES}
    detail = ", ".join(f"{name} {text}" for name, text in versions.items() if text)
    missing = [name for name, text in versions.items() if text is None and name != "headrace"]
    if missing:
        remedy = "install headrace with all its dependencies"
        return Condition.problem("packages", f"not installed: {', '.join(missing)}", remedy)
    return Condition.ok("packages", detail)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


_NAME = "postgres.orphans"


async def check_orphans(
    tools: OperatorTools, owner_url: str | None, projects: Sequence[str], *, repair: bool
) -> list[Condition]:
    """Return one condition if there are orphaned indexes; ``repair`` drops them.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    names = await _orphans(tools, projects)
    if names and repair and owner_url is not None:
        await drop_orphans(owner_url, names)
        names = await _orphans(tools, projects)
    if not names:
        return []
    remedy = (
        "headrace doctor --repair"
        if owner_url is not None
        else "set HEADRACE_OWNER_DATABASE_URL and run `headrace doctor --repair`"
    )
    detail = f"indexes of generations that no longer exist: {', '.join(names)}"
    return [Condition.problem(_NAME, detail, remedy)]


async def _orphans(tools: OperatorTools, projects: Sequence[str]) -> list[str]:
    """List indexes before generations, so that the index of a new generation isn't an orphan."""
    async with tools.database.connection() as connection:
        indexes = await indexes_by_name(connection)
    generation_ids = {
        generation.id
        for project in projects
        for generation in await tools.store.generations(project)
    }
    return [
        name
        for name, generation_id in indexes.items()
        if generation_id is not None and generation_id not in generation_ids
    ]
