"""Statistics of Postgres, without which it may read a whole generation to find one chunk.

They are made for a table as a whole. If they know all other generations of it, Postgres expects no
row of a new one, and may choose any index that begins with the generation.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from runtime.errors import Unavailable
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["analyze", "analyze_tables"]

log = structlog.get_logger(__name__)

_TIMEOUT_S = 60.0
_QUERIES = named("maintenance")


async def analyze(database: Database, project_ids: Sequence[int]) -> None:
    """Analyze new tables, and all that changed once these projects have a large new generation.

    A failure is logged, as statistics only make queries faster.
    """
    try:
        async with database.connection() as connection:
            rows = await connection.fetch(_QUERIES["tables_to_analyze"], project_ids)
    except Unavailable as error:
        log.warning("statistics.not_made", reason=str(error))
        return
    await analyze_tables(database, [row["name"] for row in rows])


async def analyze_tables(database: Database, names: Sequence[str]) -> None:
    """Analyze tables, each in a transaction of its own; a failure is logged.

    A build of a vector index holds the lock of its table for minutes.
    """
    for name in names:
        try:
            async with database.connection() as connection:
                await connection.execute(_QUERIES["analyze_table"], name, timeout=_TIMEOUT_S)
        except Unavailable as error:
            log.warning("statistics.not_made", table=name, reason=str(error))
