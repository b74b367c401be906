"""Checks of the environment in reading order: servers, clocks, models, storage, versions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from events.connection import connect
from processors.inference import ModelOptions
from processors.reconciling.clocks import judge_clocks, redis_clock
from processors.reconciling.disks import judge_archive_storage, judge_room
from processors.reconciling.findings import Condition
from processors.reconciling.models import judge_models
from processors.reconciling.packages import judge_packages
from processors.reconciling.postgres_server import judge_postgres, postgres_facts
from processors.reconciling.redis_server import judge_redis, redis_facts
from runtime.errors import HeadraceError
from store.inspecting_storage import local_directory

__all__ = ["Environment"]


@dataclass(frozen=True)
class Environment:
    """Addresses and options of the environment, taken from the settings.

    ``models``: full names of the models that the settings and the live generations use.
    """

    redis_url: str
    database_url: str
    worker_role: str
    home: Path
    archive_url: str
    models: Iterable[str]
    options: ModelOptions

    async def judge(self) -> list[Condition]:
        """Judge every condition in reading order; an unreachable server is reported as one."""
        ahead: dict[str, float] = {}
        return [
            *await self._redis(ahead),
            *await self._postgres(ahead),
            judge_clocks(ahead),
            *await judge_models(self.models, self.options),
            *await self._storage(),
            *judge_packages(),
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
            return [_unreachable("redis", error)]
        return list(judge_redis(facts))

    async def _postgres(self, ahead: dict[str, float]) -> list[Condition]:
        try:
            facts = await postgres_facts(self.database_url, self.worker_role)
        except HeadraceError as error:
            return [_unreachable("postgres", error)]
        ahead["Postgres"] = facts.clock - time.time()
        return list(judge_postgres(facts))

    async def _storage(self) -> list[Condition]:
        conditions = [
            await judge_archive_storage(self.archive_url),
            judge_room("disk.home", self.home),
        ]
        directory = local_directory(self.archive_url)
        if directory is not None:
            conditions.append(judge_room("disk.archive", directory))
        return conditions


def _unreachable(name: str, error: HeadraceError) -> Condition:
    detail, _, cure = str(error).rpartition(": ")
    return Condition.problem(name, detail or str(error), cure or "check its settings")
