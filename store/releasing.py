"""Removal of contents that were published by reference, once the archive has them."""

from __future__ import annotations

from datetime import datetime

from store.database import Database
from store.named_queries import named

__all__ = ["release_contents"]

_QUERIES = named("contents")
_AT_ONCE = 500


async def release_contents(database: Database, project_id: int, before: datetime) -> int:
    """Drop contents that are archived, were last put before a time, and are not in the outbox.

    Returns:
        Number of dropped contents.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    released = 0
    while True:
        async with database.scope(project_id) as connection:
            count: int = await connection.fetchval(
                _QUERIES["release_contents"], project_id, before, _AT_ONCE
            )
        released += count
        if count < _AT_ONCE:
            return released
