"""The doctor inside a test's event loop, at an index that a worker has made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from processors.reconciling.case import Desk
from processors.reconciling.doctor import Doctor, Health
from processors.replaying.opening import Tools
from tests.support.databases import Database
from tests.support.replays import HASHING, notes, tools
from tests.support.running import headrace

__all__ = ["doctor_at", "drift_names", "examine", "indexed"]

SETTLE = timedelta(milliseconds=50)
LEASE = timedelta()


@asynccontextmanager
async def indexed(
    redis_url: str, database: Database, home: Path, **settings: Any
) -> AsyncIterator[Tools]:
    """Tools at the project ``docs``, with thirteen documents; the worker that made it has ended."""
    async with headrace(redis_url, database, model=HASHING, home=home) as worker:
        await notes(worker)
        await worker.change("listed.md", "# Listed\n", collections=("manual",))
    async with tools(redis_url, database, home=home, **settings) as opened:
        yield opened


def doctor_at(tools: Tools) -> Doctor:
    """A doctor who doesn't wait for long."""
    return Doctor(Desk(tools, None, LEASE), SETTLE)


async def examine(tools: Tools, *, repair: bool = False) -> Health:
    """The health of ``docs``."""
    [health] = await doctor_at(tools).examine(["docs"], repair=repair)
    return health


def drift_names(health: Health) -> set[str]:
    """What was found at first."""
    return {drift.name for drift in health.drifts}
