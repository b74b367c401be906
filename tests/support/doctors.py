"""Doctor inside a test's event loop, with an index that a worker has made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from events.names import ARCHIVER
from processors.doctor.doctor import Doctor, Health
from processors.doctor.stream_snapshot import read_streams
from processors.wiring.operator_tools import OperatorTools
from tests.support.databases import Database
from tests.support.replays import HASHING, damage, notes, tools
from tests.support.running import headrace
from tests.support.waiting import eventually

__all__ = ["doctor_at", "examine", "finding_names", "forget_archive", "indexed", "is_archived"]

SETTLE = timedelta(milliseconds=50)
LEASE = timedelta()


@asynccontextmanager
async def indexed(
    redis_url: str, database: Database, home: Path, **settings: Any
) -> AsyncIterator[OperatorTools]:
    """Tools for the project ``docs`` with thirteen archived documents; their worker has ended."""
    async with (
        headrace(redis_url, database, model=HASHING, home=home) as worker,
        tools(redis_url, database, home=home) as opened,
    ):
        await notes(worker)
        await worker.change("listed.md", "# Listed\n", collections=("manual",))
        await eventually(lambda: is_archived(opened), "everything is archived")
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
    return Doctor(tools, None, LEASE, SETTLE)


async def examine(tools: OperatorTools, *, repair: bool = False) -> Health:
    """Health of ``docs``."""
    [health] = await doctor_at(tools).examine(["docs"], repair=repair)
    return health


def finding_names(health: Health) -> set[str]:
    """Names of the findings before a repair."""
    return {finding.name for finding in health.findings}
