"""History of changes by minute, read from the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["HandledChanges", "handled_by_minute"]

_QUERIES = named("history")


@dataclass(frozen=True, slots=True)
class HandledChanges:
    """Number of changes of one project that were handled in one minute with equal freshness.

    ``freshness_ms``: time from publish to searchable, rounded to 2 %; None if the publishing time
    is unknown, or if the change was not indexed.
    """

    minute: datetime
    changes: int
    freshness_ms: float | None


async def handled_by_minute(
    database: Database, project_id: int, since: datetime, until: datetime
) -> list[HandledChanges]:
    """Count the changes of a project between two times, by minute and freshness.

    The entries of a long time are read in pieces of ten minutes, so that no transaction is long.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    counts: list[HandledChanges] = []
    begin = since
    while begin < until:
        end = min(begin + timedelta(minutes=10), until)
        async with database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["handled_by_minute"], project_id, begin, end)
        counts += [
            HandledChanges(row["minute"], row["changes"], row["freshness_ms"]) for row in rows
        ]
        begin = end
    return counts
