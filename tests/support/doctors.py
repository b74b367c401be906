"""Doctor inside a test's event loop, with an index that a worker has made."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis

from events.names import ARCHIVER
from processors.doctor.doctor import Doctor, Health
from processors.doctor.stream_snapshot import read_streams
from processors.wiring.operator_tools import OperatorTools
from runtime.embedded import EmbeddedPostgres
from tests.support.databases import Database, new_database
from tests.support.replays import HASHING, damage, notes, tools
from tests.support.running import headrace
from tests.support.streams import emptied
from tests.support.waiting import eventually, slowness

__all__ = ["Indexed", "doctor_at", "examine", "finding_names", "forget_archive", "is_archived"]

SETTLE = timedelta(milliseconds=50)
"""Time in which a worker on a quiet machine acknowledges what it has applied."""
LEASE = timedelta()


@dataclass(frozen=True)
class Indexed:
    """Project ``docs`` with thirteen archived documents, whose worker has ended.

    It is made once, because that takes as long as the examination of it; tests open copies.
    ``template``: name of its database. ``keys``: each key of Redis with its dump and its remaining
    milliseconds, 0 for no limit. ``home``: directory with its archive.
    """

    template: str
    keys: Mapping[bytes, tuple[bytes, int]]
    home: Path

    @classmethod
    async def make(cls, server: EmbeddedPostgres, redis_url: str, home: Path) -> Self:
        """Index on servers that tests share; Redis is empty before and after."""
        database = await new_database(server)
        await emptied(redis_url)
        async with (
            headrace(redis_url, database, model=HASHING, home=home) as worker,
            tools(redis_url, database, home=home) as opened,
        ):
            await notes(worker)
            await worker.change("listed.md", "# Listed\n", collections=("manual",))
            await eventually(lambda: is_archived(opened), "everything is archived")
        async with Redis.from_url(redis_url) as redis:
            keys = {
                key: (dump, max(0, await redis.pttl(key)))
                async for key in redis.scan_iter()
                if (dump := await redis.dump(key)) is not None
            }
        await emptied(redis_url)
        return cls(database.name, keys, home)

    @asynccontextmanager
    async def opened(
        self, redis_url: str, database: Database, home: Path, **settings: Any
    ) -> AsyncIterator[OperatorTools]:
        """Tools for a copy: an empty Redis is filled; ``database`` is a clone of ``template``."""
        marker = shutil.ignore_patterns("deployment.json")  # it names the database
        shutil.copytree(self.home, home, dirs_exist_ok=True, ignore=marker)
        async with Redis.from_url(redis_url) as redis:
            for key, (dump, milliseconds) in self.keys.items():
                await redis.restore(key, milliseconds, dump)
        async with tools(redis_url, database, home=home, **settings) as opened:
            yield opened


async def is_archived(tools: OperatorTools) -> bool:
    """True if the archiver has handled every entry of ``docs``."""
    streams = await read_streams(tools.redis, tools.names)
    return all(streams.handled(ARCHIVER, entry) for entry in streams.of("docs"))


async def forget_archive(database: Database) -> None:
    """Empty the archive's index of files."""
    for table in ("archive_contents", "archive_segments"):
        await damage(database, f"delete from {table} where $1::int > 0")  # noqa: S608 - two names


def doctor_at(tools: OperatorTools) -> Doctor:
    """Doctor with short waits."""
    return Doctor(tools, None, LEASE, SETTLE * slowness())


async def examine(tools: OperatorTools, *, repair: bool = False) -> Health:
    """Health of ``docs``."""
    [health] = await doctor_at(tools).examine(["docs"], repair=repair)
    return health


def finding_names(health: Health) -> set[str]:
    """Names of the findings before a repair."""
    return {finding.name for finding in health.findings}
