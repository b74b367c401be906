"""Replacement of old files by new ones in the archive's index, in one transaction each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import asyncpg

from runtime.errors import Unavailable
from store.archive.index import NewFile, insert_file, span_columns
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["NewEventsArchived", "Replacing"]

_QUERIES = named("archive")


class NewEventsArchived(Exception):
    """New changes were archived that may refer to contents about to be dropped."""


class Replacing:
    """Replaces files by others. Old ones stay readable for some time: see ``Index.retired``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def alone(self, project_id: int) -> AsyncIterator[bool]:
        """Hold the project's compaction lock; yields false if another process holds it."""
        async with (
            self._database.connection() as connection,
            Lock.COMPACTION.holding(connection, project_id) as is_held,
        ):
            yield is_held

    async def events(
        self,
        project_id: int,
        old: Collection[int],
        new: Sequence[NewFile],
        *,
        dropped: int,
        complete_from: int | None,
    ) -> int:
        """Replace files of events; return the number of bytes freed."""
        async with self._database.scope(project_id) as connection:
            freed = await _retire(connection, project_id, old) - _size(new)
            for file in new:
                await insert_file(connection, project_id, file)
            await _record(connection, project_id, freed, dropped, complete_from)
        return freed

    async def contents(
        self,
        project_id: int,
        old: Collection[int],
        new: Sequence[NewFile],
        events: Collection[int] | None,
    ) -> int:
        """Replace packs; return the number of bytes freed. Contents absent in new ones are dropped.

        ``events``: files of events whose references were read, or None if no content is dropped.

        Raises:
            NewEventsArchived: there are new files of events; nothing is changed.
        """
        async with self._database.scope(project_id) as connection:
            await Lock.ARCHIVED_CONTENTS.acquire(connection, project_id)
            if events is not None:
                await _refuse_new_events(connection, project_id, events)
            freed = await _retire(connection, project_id, old) - _size(new)
            for file in new:
                segment_id = await insert_file(connection, project_id, file)
                hashes, starts, *_ = span_columns(file.spans)
                await connection.execute(
                    _QUERIES["move_contents"], project_id, segment_id, hashes, starts
                )
            await connection.execute(_QUERIES["drop_contents"], project_id, list(old))
            await _record(connection, project_id, freed, 0, None)
        return freed


async def _refuse_new_events(
    connection: asyncpg.Connection, project_id: int, events: Collection[int]
) -> None:
    if await connection.fetchval(_QUERIES["has_other_events"], project_id, list(events)):
        raise NewEventsArchived


async def _retire(connection: asyncpg.Connection, project_id: int, old: Collection[int]) -> int:
    """Mark files as replaced, so that new readers skip them; return their size in bytes."""
    rows = await connection.fetch(_QUERIES["retire"], project_id, list(old))
    if len(rows) != len(old):
        raise Unavailable("another compaction changed the same files; it will be tried again")
    return sum(row["size_bytes"] for row in rows)


def _size(files: Sequence[NewFile]) -> int:
    return sum(file.size_bytes for file in files)


async def _record(
    connection: asyncpg.Connection,
    project_id: int,
    freed: int,
    dropped: int,
    complete_from: int | None,
) -> None:
    await connection.execute(
        _QUERIES["record_compaction"], project_id, freed, dropped, complete_from
    )
