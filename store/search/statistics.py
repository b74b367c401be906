"""Statistics of Postgres, without which it may read a whole generation to find one chunk.

They are made for a table as a whole. If they know all other generations of it, Postgres expects no
row of a new one, and may choose any index that begins with the generation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from runtime.errors import Unavailable
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["analyze", "analyze_tables"]

log = structlog.get_logger(__name__)

_TIMEOUT_S = 50.0
"""Longest time for a table. The lease of the projects (``due_projects.LEASE``) is longer."""

_LOCKED_TIMEOUT_S = 12.0
"""Longest time for ``chunks``. The rows of new generations are locked during it, so a switch waits;
other statements would end after 15 s."""

_QUERIES = named("maintenance")

Renew = Callable[[], Awaitable[object]]


async def _need_no_lease() -> None:
    """Do nothing."""


async def analyze(
    database: Database,
    project_ids: Sequence[int],
    renew: Renew = _need_no_lease,
    *,
    with_chunks: bool = True,
) -> bool:
    """Analyze new tables, and all that changed once these projects have a large new generation.

    A failure is logged, as statistics only make queries faster. If it is that of ``chunks``, the
    generation remains new, and False is returned. Without ``with_chunks``, only other new tables
    are analyzed. ``renew`` is awaited before each of these: it extends a lease.

    Raises:
        Unavailable: the lease could not be extended.
    """
    names: list[str] = []
    is_known = False
    try:
        async with database.transaction() as connection:
            wanted = project_ids if with_chunks else []
            rows = await connection.fetch(_QUERIES["tables_to_analyze"], wanted)
            names = [row["name"] for row in rows]
            if with_chunks and "chunks" in names:
                await connection.execute(
                    _QUERIES["analyze_table"], "chunks", timeout=_LOCKED_TIMEOUT_S
                )
        is_known = True
    except Unavailable as error:
        log.warning("statistics.not_made", reason=str(error))
    await analyze_tables(database, [name for name in names if name != "chunks"], renew)
    return is_known


async def analyze_tables(
    database: Database, names: Sequence[str], renew: Renew = _need_no_lease
) -> None:
    """Analyze tables, each in a transaction of its own; a failure is logged. See ``analyze``.

    A build of a vector index holds the lock of its table for minutes.
    """
    for name in names:
        await renew()
        try:
            async with database.connection() as connection:
                await connection.execute(_QUERIES["analyze_table"], name, timeout=_TIMEOUT_S)
        except Unavailable as error:
            log.warning("statistics.not_made", table=name, reason=str(error))
