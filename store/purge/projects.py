"""Deletion of projects: they are out of use at once, then lose their rows, then their archive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from store.archive import Archive
from store.generations import catalog
from store.generations.catalog import Generation
from store.generations.drop import drop_rows, forget
from store.generations.switch import exclusive
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["DeletedProject", "DeletedProjects", "remove_project"]

_QUERIES = named("projects")
_BATCH_ROWS = 5_000
_TABLES = (
    "vector_cache",
    "contexts",
    "model_costs",
    "ledger",
    "batches",
    "batch_changes",
    "contents",
    "outbox",
    "evaluations",
    "judgements",
    "collection_strategies",
)
_ARCHIVE_TABLES = ("archive_contents", "archive_segments", "archive_compactions")


@dataclass(frozen=True, slots=True)
class DeletedProject:
    """A deleted project whose archive, and perhaps rows, still exist. ``name`` is unique."""

    id: int
    name: str
    deleted_at: datetime


class DeletedProjects:
    """Deletes projects in steps, each of which is atomic.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[DeletedProject]:
        """All deleted projects that are not removed yet, by id."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["list_deleted_projects"])
        return [DeletedProject(**row) for row in rows]

    async def retire(self, project_id: int) -> str:
        """Take a project out of use and return its new name, which ends in ``#`` and its id.

        Raises:
            WriteConflict: writers held their locks for too long; nothing has changed.
        """
        async with exclusive(self._database, project_id) as connection:
            return str(await connection.fetchval(_QUERIES["retire_project"], project_id))

    async def generations(self, project_id: int) -> list[Generation]:
        """Generations of a project that still have rows."""
        async with self._database.scope(project_id) as connection:
            return await catalog.listed(connection, project_id)

    async def drop_rows(self, project_id: int) -> AsyncIterator[int]:
        """Delete all rows except those of the archive; yield the number deleted by each batch."""
        for generation in await self.generations(project_id):
            async for dropped in drop_rows(self._database, generation):
                yield dropped
            await forget(self._database, generation)
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            yield await connection.fetchval(_QUERIES["drop_sources_and_keys"])
        for table in _TABLES:
            async for dropped in self._drop(project_id, table):
                yield dropped

    async def remove(self, project_id: int) -> None:
        """Remove the last rows of a project whose files are already removed."""
        for table in _ARCHIVE_TABLES:
            async for _ in self._drop(project_id, table):
                pass
        async with self._database.connection() as connection:
            await connection.execute(_QUERIES["remove_project"], project_id)

    async def _drop(self, project_id: int, table: str) -> AsyncIterator[int]:
        query = _QUERIES["drop_project_rows"].format(table=table)
        dropped = _BATCH_ROWS
        while dropped == _BATCH_ROWS:
            async with self._database.scope(project_id, EVERY_AGENT) as connection:
                dropped = await connection.fetchval(query, project_id, _BATCH_ROWS)
            yield dropped


async def remove_project(database: Database, archive: Archive, project_id: int) -> int:
    """Remove the files of a deleted project, then the project; return the number of files.

    Raises:
        Unavailable: Postgres or the archive's storage cannot be reached; the call can be repeated.
    """
    deleted = DeletedProjects(database)
    files = await archive.drop(project_id)
    async for _ in deleted.drop_rows(project_id):
        pass
    # an archiver that had read the last changes before the deletion may have written them since
    files += await archive.drop(project_id)
    await deleted.remove(project_id)
    return files
