"""Rows of ``status`` about the archive and about what was trimmed from Redis."""

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
    """Entries of each stream that wait for the archive, that Redis keeps, and that were trimmed.

    Raises:
        Unavailable: Redis can't be reached.
    """
    backlog = await read_backlog(redis, names, ARCHIVERS)
    trimmed = await read_trimmed(redis, names)
    return [
        {
            "topic": stream.topic.value,
            "partition": stream.partition,
            "lag": stream.lag,
            "pending": stream.pending,
            "oldest_unarchived_s": None
            if stream.oldest_unacknowledged is None
            else round(stream.oldest_unacknowledged.total_seconds(), 3),
            "kept": stream.length,
            "trimmed": trimmed[stream.topic.lane, stream.partition],
        }
        for stream in backlog
    ]


async def archive_rows(
    archive: Archive, outbox: PostgresOutbox, projects: Sequence[ProjectStatistics]
) -> list[dict[str, Any]]:
    """Contents and sizes of each project's archive, and the bytes that compaction freed.

    ``bytes_per_document`` divides the bytes of the archive's files by the number of documents in
    the index. It is None if there are no documents.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    rows = []
    for project in projects:
        statistics = await archive.statistics(project.project)
        if statistics is None:
            continue
        beginning = statistics.beginning
        each = statistics.stored_bytes / project.documents if project.documents else None
        rows.append(
            {
                "project": project.project,
                "changes": statistics.events,
                "contents": statistics.contents,
                "files": statistics.files,
                "bytes": statistics.stored_bytes,
                "raw_bytes": statistics.raw_bytes,
                "bytes_per_document": None if each is None else round(each, 1),
                "freed_bytes": statistics.freed_bytes,
                "dropped_changes": statistics.dropped_events,
                "whole_from": None if beginning is None else beginning.at.isoformat(),
                "outbox": await outbox.count(project.project),
            }
        )
    return rows
