"""Projects that were written to recently; only these may need maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["Activity", "Writes", "waiting_projects"]

SETTLING = timedelta(minutes=1)
"""A project stays due for this long after a change: another worker may have held its lock, or the
build of a vector index may be deferred until no more vectors arrive."""

_COUNT_AGE_S = 1.0
_QUERIES = named("maintenance")


@dataclass(frozen=True, slots=True)
class _Change:
    mark: str
    at: float


class Writes:
    """Number of rows ever written, read at most once a second for all tasks of a process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._count: int | None = None
        self._read_at = -_COUNT_AGE_S

    async def count(self) -> int | None:
        """Count rows, as far as sessions have reported them; up to a second old.

        Raises:
            Unavailable: Postgres cannot be reached.
        """
        now = monotonic()
        if now - self._read_at >= _COUNT_AGE_S:
            async with self._database.connection() as connection:
                self._count = await connection.fetchval(_QUERIES["count_writes"])
            self._read_at = now
        return self._count


class Activity:
    """Projects that are due for one maintenance task.

    While nothing is written anywhere, a check is one SQL query, whose cost does not depend on the
    number of projects. After a write it is one more, for all projects together.
    """

    def __init__(
        self, database: Database, all_every: timedelta, writes: Writes | None = None
    ) -> None:
        """``all_every``: interval at which every project is due, even if nothing was written.

        Tasks of one process share ``writes``.
        """
        self._database = database
        self._count = (writes or Writes(database)).count
        self._all_every = all_every
        self._all_at = 0.0
        self._writes: int | None = None
        self._changes: dict[int, _Change] = {}

    async def due(self) -> list[int]:
        """Ids of the projects that are due now.

        Raises:
            Unavailable: Postgres cannot be reached.
        """
        now = monotonic()
        all_are_due = now >= self._all_at
        writes = await self._count()
        if all_are_due or writes != self._writes:
            async with self._database.connection() as connection:
                rows = await connection.fetch(_QUERIES["marks"])
            self._note({row["project_id"]: row["mark"] for row in rows}, now)
            self._writes = writes
        if all_are_due:
            self._all_at = now + self._all_every.total_seconds()
            return list(self._changes)
        settled = now - SETTLING.total_seconds()
        return [project_id for project_id, change in self._changes.items() if change.at >= settled]

    def retry(self, project_id: int) -> None:
        """Make a project due again because its task failed."""
        self._changes[project_id] = _Change("", monotonic())

    def _note(self, marks: dict[int, str], now: float) -> None:
        self._changes = {
            project_id: change
            if (change := self._changes.get(project_id)) and change.mark == mark
            else _Change(mark, now)
            for project_id, mark in marks.items()
        }


async def waiting_projects(database: Database) -> set[int]:
    """Ids of the projects whose live generation has chunks that have no vector yet.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(_QUERIES["marks"])
    return {row["project_id"] for row in rows if row["is_waiting"]}
