"""Deletion and purge of whole projects. Both can be interrupted anywhere and run again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from events.names import Lane, LogPosition
from events.server.connection import redis_errors
from events.streams.entries import order
from events.streams.groups import read_groups
from events.streams.purge import PurgeTargets, StreamPurge, require_rights
from processors.purge.documents import Purge, PurgeReport, finish
from processors.replay.project_log import stream_ends
from processors.wiring.servers import Servers
from store.generations.catalog import REMEMBERED
from store.postgres.connection import WriteConflict
from store.postgres.locks import replay_lock
from store.purge.projects import DeletedProjects, remove_project
from store.search.vector_indexes import VectorIndexes

__all__ = ["DeletedReport", "delete_project", "purge_project"]

_CACHE_EXPIRY = REMEMBERED + timedelta(seconds=0.5)
_POLL_SECONDS = 0.1
_GROUPS_SECONDS = 3.0


@dataclass(frozen=True)
class DeletedReport:
    """Result of deleting a project. ``name`` is the name that its archive is kept under."""

    project: str
    project_id: int
    name: str
    rows: int
    entries: int


async def delete_project(
    servers: Servers, indexes: VectorIndexes, project: str, patience: timedelta
) -> DeletedReport:
    """Retire a project, and drop its index, its entries in the streams and its other rows.

    Its archive is kept. Publishing to its name creates a new project. For a project that is deleted
    already (``name#id``), this removes what an interrupted delete left.

    Raises:
        UsageError: no such project, or it is being replayed.
        ConfigurationError: the Redis user may not delete entries from streams.
        Unavailable: a server can't be reached, or writers held locks for all of ``patience``.
    """
    project_id = await servers.projects.require(project)
    await require_rights(servers.redis, servers.names)
    deleted = DeletedProjects(servers.database)
    async with replay_lock(servers.database, project, project_id):
        name = project
        entries = 0
        if "#" not in project:
            with redis_errors():
                seconds, microseconds = await servers.redis.time()
            until = LogPosition.of_entry(
                Lane.LIVE, 0, f"{seconds * 1000 + microseconds // 1000}-0"
            ).position
            await _wait_for_groups(servers)
            name = await _retire(deleted, project_id, patience)
            await asyncio.sleep(_CACHE_EXPIRY.total_seconds())  # other processes cache the name
            streams = StreamPurge(servers.redis, servers.names)
            entries = await streams.delete(PurgeTargets(project, until=until))
        rows = 0
        for generation in await deleted.generations(project_id):
            await indexes.drop(project_id, generation.id)
        async for dropped in deleted.drop_rows(project_id):
            rows += dropped
    return DeletedReport(project, project_id, name, rows, entries)


async def purge_project(purge: Purge, indexes: VectorIndexes, project: str) -> PurgeReport:
    """Delete a project, and remove its archive and every byte of it from the servers' files.

    Raises:
        UsageError, ConfigurationError, Unavailable: see ``delete_project``.
    """
    servers = purge.servers
    deleted = await delete_project(servers, indexes, project, purge.patience)
    report = PurgeReport(project, None)
    name = project.partition("#")[0]
    streams = StreamPurge(servers.redis, servers.names)
    if "#" not in project:
        purged = await streams.purge(PurgeTargets(project, until=0), purge.patience)
        report.add_crowded(purged.crowded)
    report.removed["index and memory"] = f"{deleted.rows} rows"
    report.removed["streams"] = f"{deleted.entries} entries of {name}"
    files = await remove_project(servers.database, servers.archive, deleted.project_id)
    report.removed["archive"] = f"{files} files"
    await finish(purge, report)
    return report


async def _wait_for_groups(servers: Servers) -> None:
    """Wait until the workers have handled and archived what is in the streams now.

    A worker that holds a change of the project would store it after the deletion, and so create the
    project again. A group without running workers is not waited for any longer than a moment.
    """
    redis = servers.redis
    ends = await stream_ends(redis, servers.names)
    with redis_errors():
        deadline = monotonic() + _GROUPS_SECONDS
        while monotonic() < deadline:
            progress = [(await read_groups(redis, key), end) for key, end in ends.items()]
            if all(
                order(end) <= order(group.handled)
                for groups, end in progress
                for group in groups.values()
            ):
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _retire(deleted: DeletedProjects, project_id: int, patience: timedelta) -> str:
    deadline = monotonic() + patience.total_seconds()
    while True:
        try:
            return await deleted.retire(project_id)
        except WriteConflict:
            if monotonic() > deadline:
                raise
            await asyncio.sleep(_POLL_SECONDS)
