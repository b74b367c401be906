"""One replay of a project at a time, across all processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runtime.errors import UsageError
from store.database import Database
from store.named_queries import named

__all__ = ["LOCK_SPACE", "replay_lock"]

LOCK_SPACE = 0x48445250
"""Of the advisory locks that replays hold, by project."""

_QUERIES = named("switching")


@asynccontextmanager
async def replay_lock(database: Database, project: str, project_id: int) -> AsyncIterator[None]:
    """Hold the project's replay lock; it goes with the process, however that ends.

    Raises:
        UsageError: another process has it.
        Unavailable: Postgres can't be reached.
    """
    async with database.connection() as connection:
        if not await connection.fetchval(_QUERIES["try_hold"], LOCK_SPACE, project_id):
            raise UsageError(
                f"project {project} is being replayed by another process: wait for its end"
            )
        try:
            yield
        finally:
            if not connection.is_closed():
                await connection.execute(_QUERIES["let_go"], LOCK_SPACE, project_id)
