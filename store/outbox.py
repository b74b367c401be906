"""Events that were published durably, until the archive has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from events.names import Lane, Position
from events.outbox import KeptEvent, Placed, WaitingEvent
from store.database import Database
from store.named_queries import named
from store.projects import Projects

__all__ = ["PostgresOutbox"]

_QUERIES = named("outbox")


class PostgresOutbox:
    """The table of that name. The archive takes events out of it as it enters them.

    Every method raises Unavailable when Postgres can't be reached, and ConfigurationError when its
    schema isn't the one expected.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def keep(self, events: Sequence[KeptEvent]) -> None:
        """Keep events: they are committed when this returns. Creates projects that don't exist.

        An event that is kept already stays as it is.
        """
        for project, some in _by_project(events).items():
            project_id = await self._projects.ensure(project)
            async with self._database.scope(project_id) as connection:
                await connection.execute(
                    _QUERIES["keep"],
                    project_id,
                    [event.event_id for event in some],
                    [event.lane.value for event in some],
                    [event.partition for event in some],
                    [event.body for event in some],
                    [event.signature for event in some],
                )

    async def place(self, placed: Sequence[Placed]) -> None:
        """Note where events came to stand; those that are taken out by now are passed over."""
        for project, some in _by_project(placed).items():
            project_id = await self._projects.ensure(project)
            positions = [Position.from_token(one.token).number for one in some]
            async with self._database.scope(project_id) as connection:
                await connection.execute(
                    _QUERIES["place"], project_id, [one.event_id for one in some], positions
                )

    async def drop(self, project: str, refused: Sequence[tuple[bytes, bytes]]) -> None:
        """Forget events that nobody takes, by their bytes and signature: they are dead letters."""
        project_id = await self._projects.ensure(project)
        bodies, signatures = zip(*refused, strict=True)
        async with self._database.scope(project_id) as connection:
            await connection.execute(_QUERIES["drop"], project_id, bodies, signatures)

    async def projects(self) -> list[str]:
        """Names of all projects that may have events here."""
        return list(await self._projects.all())

    async def waiting(
        self, project: str, older_than: timedelta, *, after: str = "", limit: int = 500
    ) -> list[WaitingEvent]:
        """Events that have been here for longer than that, by id, beginning behind one."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["waiting"], project_id, after, older_than.total_seconds(), limit
            )
        return [
            WaitingEvent(
                project=project,
                event_id=row["event_id"],
                lane=Lane(row["lane"]),
                partition=row["partition"],
                position=row["position"],
                number=row["number"],
                created_at=row["created_at"],
                signature=row["signature"],
            )
            for row in rows
        ]

    async def count(self, project: str) -> int:
        """How many events of a project are here."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            return int(await connection.fetchval(_QUERIES["count"], project_id))

    async def bodies(self, project: str, event_ids: Sequence[str]) -> dict[str, bytes]:
        """Events by id; those that are taken out by now are absent."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["bodies"], project_id, event_ids)
        return {row["event_id"]: row["event"] for row in rows}

    async def handled(self, project: str, event_ids: Sequence[str]) -> dict[str, int]:
        """First position of events that the index has met, by event id."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["handled"], project_id, event_ids)
        return {row["event_id"]: row["position"] for row in rows}


class _OfProject(Protocol):
    @property
    def project(self) -> str: ...


T = TypeVar("T", bound=_OfProject)


def _by_project(items: Iterable[T]) -> dict[str, list[T]]:
    grouped: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        grouped[item.project].append(item)
    return grouped
