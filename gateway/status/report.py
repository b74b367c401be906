"""State of a deployment and of what it stores, for ``headrace status`` and for operators' pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from redis.asyncio import Redis

from events.names import Names
from events.server.cluster import primaries_of
from events.server.connection import check_server, redis_errors
from gateway.status import rows
from gateway.status.snapshot import archive_rows, archiver_rows, read_snapshot
from processors.doctor.checks.postgres_server import check_locks
from processors.doctor.findings import Condition, State
from store.archive import Archive
from store.generations import catalog
from store.generations.catalog import Projects
from store.generations.inventory import Inventory
from store.inspection.environment import read_locks
from store.outbox import PostgresOutbox
from store.postgres.pool import EVERY_AGENT, Database
from store.views import statistics
from store.views.statistics import ProjectStatistics

__all__ = ["StatusReport", "read_status"]


@dataclass(frozen=True)
class _Project(ProjectStatistics):
    """Counts of a project, and the recipe of its index."""

    model: str
    models: Mapping[str, str]
    chunking: str
    context: str


@dataclass(frozen=True)
class StatusReport:
    """State of servers, streams, workers, projects and archive.

    ``servers`` says whose servers these are, ``redis`` the version of Redis, and ``replica`` how
    far the replica of Postgres is; it is empty if the settings name none.
    """

    servers: str
    redis: str
    snapshot: rows.Snapshot
    archiver: Sequence[Mapping[str, Any]]
    projects: Sequence[_Project]
    archive: Sequence[Mapping[str, Any]]
    replica: str = ""

    def to_json(self) -> dict[str, Any]:
        """Fields as ``headrace status --json`` prints them."""
        plain = asdict(self)
        for row, project in zip(plain["projects"], self.projects, strict=True):
            row["coverage"] = project.coverage
        del plain["snapshot"]
        return {**plain, **self.snapshot.to_json()}


async def read_status(
    redis: Redis,
    database: Database,
    names: Names,
    archive_location: str,
    *,
    servers: str,
    build: str = "",
    project: str | None = None,
    replica: Sequence[Condition] = (),
) -> StatusReport:
    """Read the state of a deployment, with the stored data of one project or of all.

    ``build`` describes the Redis server after its version. ``replica`` has the condition of the
    replica of Postgres, if there is one.

    Raises:
        UnknownProject: no such project.
        Unavailable: Redis or Postgres can't be reached.
    """
    facts = await check_server(redis)
    with redis_errors():
        primaries = await primaries_of(redis)
    snapshot = await read_snapshot(redis, names)
    snapshot = replace(snapshot, warnings=[*snapshot.warnings, *await _warnings(database)])
    archiver = await archiver_rows(redis, names)
    ids = await Inventory(database).projects(project)
    projects = [await _read_project(database, name, ids[name]) for name in sorted(ids)]
    catalogue = Projects(database)
    archives = await archive_rows(
        Archive(database, catalogue, archive_location),
        PostgresOutbox(database, catalogue),
        projects,
    )
    version = ".".join(map(str, facts.version))
    cluster = f", cluster of {len(primaries)} primaries" if len(primaries) > 1 else ""
    return StatusReport(
        servers,
        f"{version}{build}{cluster}",
        snapshot,
        archiver,
        projects,
        archives,
        "; ".join(condition.detail for condition in replica),
    )


async def _warnings(database: Database) -> list[str]:
    """Warn before searches fail because Postgres has no room for their locks."""
    async with database.connection() as connection:
        locks = check_locks(await read_locks(connection))
    return [] if locks.state is State.OK else [f"{locks.detail}; {locks.remedy}"]


async def _read_project(database: Database, name: str, project_id: int) -> _Project:
    async with database.scope(project_id, EVERY_AGENT) as connection:
        live = await catalog.live(connection, project_id)
        counts = await statistics.measure(connection, project_id, name)
    return _Project(
        **asdict(counts),
        model=live.recipe.model,
        models=dict(live.recipe.models),
        chunking=live.recipe.chunking,
        context=live.recipe.context,
    )
