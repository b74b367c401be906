"""Outbox of durably published events, which are kept until the archive has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from events.names import Lane, LogPosition
from events.outbox import AssignedPosition, KeptEvent, WaitingEvent
from store.documents import ledger
from store.generations.catalog import Projects
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["PostgresOutbox"]

_QUERIES = named("outbox")


class PostgresOutbox:
    """Outbox in a Postgres table. The archive removes events from it as it stores them.

    Every method raises Unavailable if Postgres cannot be reached, and ConfigurationError if its
    schema is not the expected one.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def keep(self, events: Sequence[KeptEvent]) -> None:
        """Store events, committed when this returns. Creates projects that do not exist.

        An event that is already stored stays unchanged.
        """
        for project, group in _by_project(events).items():
            project_id = await self._projects.ensure(project)
            async with self._database.scope(project_id) as connection:
                await connection.execute(
                    _QUERIES["keep"],
                    project_id,
                    [event.event_id for event in group],
                    [event.lane.value for event in group],
                    [event.partition for event in group],
                    [event.body for event in group],
                    [event.signature for event in group],
                )

    async def assign(self, assigned: Sequence[AssignedPosition]) -> None:
        """Record the log positions of events; events that are already removed are ignored."""
        for project, group in _by_project(assigned).items():
            project_id = await self._projects.ensure(project)
            positions = [LogPosition.from_token(entry.token) for entry in group]
            async with self._database.scope(project_id) as connection:
                await connection.execute(
                    _QUERIES["place"],
                    project_id,
                    [entry.event_id for entry in group],
                    [position.position for position in positions],
                    [position.partition for position in positions],
                )

    async def drop(self, project: str, refused: Sequence[tuple[bytes, bytes]]) -> None:
        """Remove rejected events, given by bytes and signature; they are dead-lettered."""
        project_id = await self._projects.ensure(project)
        bodies, signatures = zip(*refused, strict=True)
        async with self._database.scope(project_id) as connection:
            await connection.execute(_QUERIES["drop"], project_id, bodies, signatures)

    async def projects(self) -> list[str]:
        """Names of the projects that have events in the outbox."""
        ids = await self._projects.all()
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["projects"], list(ids.values()))
        with_events = {row["project_id"] for row in rows}
        return [name for name, project_id in ids.items() if project_id in with_events]

    async def waiting(
        self, project: str, older_than: timedelta, *, after: str = "", limit: int = 500
    ) -> list[WaitingEvent]:
        """Events that have been stored for longer than ``older_than``, by id, after ``after``."""
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
        """Number of events of a project in the outbox."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            return int(await connection.fetchval(_QUERIES["count"], project_id))

    async def bodies(self, project: str, event_ids: Sequence[str]) -> dict[str, bytes]:
        """Bodies of events by id; events that are already removed are absent."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["bodies"], project_id, event_ids)
        return {row["event_id"]: row["event"] for row in rows}

    async def handled(self, project: str, event_ids: Sequence[str]) -> dict[str, int]:
        """First log position of events that the index has handled, by event id."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            return await ledger.first_positions(connection, project_id, event_ids)


class _OfProject(Protocol):
    @property
    def project(self) -> str: ...


T = TypeVar("T", bound=_OfProject)


def _by_project(items: Iterable[T]) -> dict[str, list[T]]:
    grouped: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        grouped[item.project].append(item)
    return grouped
