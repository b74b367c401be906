"""Projects that are due for maintenance: writers note them, and workers visit no others.

A note is a row that the transaction of a writer adds (the triggers ``note_maintenance``), so
nothing is due while nothing is written, however many projects there are. Writers only add notes and
never wait for each other. Once an hour every project is noted, in case that a note is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["DueProject", "DueProjects", "Task", "overdue_projects", "waiting_projects"]

ROUND = timedelta(hours=1)
"""Time in which every project is visited once. The visits are spread over it."""

LEASE = timedelta(minutes=1)
"""Time after which another worker may take a project whose worker has not finished."""

MOST_NOTES = 8
"""A project is due when it has this many notes, which may have as many segments to be merged."""

MATURITY = timedelta(seconds=10)
"""Age of a note at which a project is due that has fewer, so that a visit has more to do."""

_MOST_PROJECTS = 1_000
_QUERIES = named("maintenance")


class Task(StrEnum):
    """Kinds of maintenance, each with notes of its own."""

    SEGMENTS = "segments"
    SWEEP = "sweep"
    VECTORS = "vectors"
    CALIBRATION = "calibration"
    CONTEXTS = "contexts"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class DueProject:
    """A project with the ids of its notes, and the tasks that they are for."""

    project_id: int
    notes: Sequence[int]
    tasks: frozenset[Task]


class DueProjects:
    """Projects that are due for some tasks.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database, *tasks: Task) -> None:
        self._database = database
        self._tasks = tasks

    async def take(self) -> list[DueProject]:
        """Take projects that are due; no other worker gets them for a minute.

        The caller must ``settle`` or ``postpone`` each of them. Otherwise it is due again.
        """
        return await self._fetch("take_due", _MOST_PROJECTS, MOST_NOTES, MATURITY, LEASE)

    async def noted(self) -> list[DueProject]:
        """Return the projects that have notes, and leave them to other workers as well."""
        return await self._fetch("read_due")

    async def settle(self, due: Sequence[DueProject]) -> None:
        """Remove the notes of projects whose work is done."""
        await self._execute(due, "settle_due")

    async def postpone(self, due: Sequence[DueProject], pause: timedelta) -> None:
        """Make projects due again after a pause, or after ``MATURITY`` if they have few notes."""
        await self._execute(due, "postpone_due", pause)

    async def note(self, project_ids: Sequence[int], pause: timedelta) -> None:
        """Note projects for a time after a pause, unless a later visit is noted already.

        A note that is due within ``LEASE`` may be that of a visit which has begun.
        """
        if project_ids:
            async with self._database.connection() as connection:
                await connection.execute(
                    _QUERIES["note_due"], self._tasks, project_ids, pause, LEASE
                )

    async def begin_round(self) -> None:
        """Once an hour, note every project for the tasks, at a random time of the next hour."""
        async with self._database.connection() as connection:
            await connection.execute(_QUERIES["begin_round"], ROUND, self._tasks)

    async def _execute(self, due: Sequence[DueProject], query: str, *arguments: object) -> None:
        notes = [note for project in due for note in project.notes]
        if notes:
            async with self._database.connection() as connection:
                await connection.execute(_QUERIES[query], notes, *arguments)

    async def _fetch(self, query: str, *arguments: object) -> list[DueProject]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES[query], self._tasks, *arguments)
        return _by_project((row["project"], row["id"], Task(row["task"])) for row in rows)


def _by_project(rows: Iterable[tuple[int, int, Task]]) -> list[DueProject]:
    notes: defaultdict[int, list[int]] = defaultdict(list)
    tasks: defaultdict[int, set[Task]] = defaultdict(set)
    for project_id, note, task in rows:
        notes[project_id].append(note)
        tasks[project_id].add(task)
    return [
        DueProject(project_id, notes[project_id], frozenset(tasks[project_id]))
        for project_id in sorted(notes)
    ]


async def waiting_projects(database: Database) -> set[int]:
    """Ids of the projects whose live generation has chunks that have no vector yet.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(_QUERIES["waiting_projects"])
    return {row["project_id"] for row in rows}


async def overdue_projects(database: Database, age: timedelta) -> set[int]:
    """Ids of the ``waiting_projects`` of which a document has waited for that long.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    waiting = await waiting_projects(database)
    if not waiting:
        return set()
    async with database.connection() as connection:
        rows = await connection.fetch(_QUERIES["overdue_projects"], sorted(waiting), age)
    return {row["project_id"] for row in rows}
