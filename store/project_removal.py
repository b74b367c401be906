"""The end of a deleted project: its archive goes, and its last rows with it."""

from __future__ import annotations

from store.archive import Archive
from store.database import Database
from store.deleted_projects import DeletedProjects

__all__ = ["remove_project"]


async def remove_project(database: Database, archive: Archive, project_id: int) -> int:
    """Remove the files of a deleted project, and the project; how many files.

    Raises:
        Unavailable: Postgres or the archive's storage can't be reached. Again does no harm.
    """
    deleted = DeletedProjects(database)
    files = await archive.drop(project_id)
    async for _ in deleted.drop_rows(project_id):
        pass
    await deleted.remove(project_id)
    return files
