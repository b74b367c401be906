"""What ``status`` says of the archive, and of what it lets Redis forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from events.backlog import ARCHIVERS, read_backlog
from events.names import Names
from events.trimming import read_trimmed
from store.archive import Archive
from store.outbox import PostgresOutbox
from store.statistics import ProjectStatistics

__all__ = ["archive_rows", "archiver_rows"]


async def archiver_rows(redis: Redis, names: Names) -> list[dict[str, Any]]:
    """By stream: what waits for the archive, what Redis still has, and what has left it.

    Raises:
        Unavailable: Redis can't be reached.
    """
    backlog = await read_backlog(redis, names, ARCHIVERS)
    trimmed = await read_trimmed(redis, names)
    return [
        {
            "topic": one.topic.value,
            "partition": one.partition,
            "lag": one.lag,
            "pending": one.pending,
            "oldest_unarchived_s": None
            if one.oldest_unacknowledged is None
            else round(one.oldest_unacknowledged.total_seconds(), 3),
            "kept": one.length,
            "trimmed": trimmed[one.topic.lane, one.partition],
        }
        for one in backlog
    ]


async def archive_rows(
    archive: Archive, outbox: PostgresOutbox, projects: Sequence[ProjectStatistics]
) -> list[dict[str, Any]]:
    """By project: what is archived in how many bytes, and what compaction freed.

    ``bytes_per_document`` counts the bytes of the archive's files for each document that there is;
    None without documents.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    rows = []
    for project in projects:
        found = await archive.statistics(project.project)
        if found is None:
            continue
        beginning = found.beginning
        each = found.stored_bytes / project.documents if project.documents else None
        rows.append(
            {
                "project": project.project,
                "changes": found.events,
                "contents": found.contents,
                "files": found.files,
                "bytes": found.stored_bytes,
                "raw_bytes": found.raw_bytes,
                "bytes_per_document": None if each is None else round(each, 1),
                "freed_bytes": found.freed_bytes,
                "dropped_changes": found.dropped_events,
                "whole_from": None if beginning is None else beginning.at.isoformat(),
                "outbox": await outbox.count(project.project),
            }
        )
    return rows
