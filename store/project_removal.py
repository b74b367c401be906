"""Final removal of a deleted project, with its archive and its last rows."""

from __future__ import annotations

from store.archive import Archive
from store.database import Database
from store.deleted_projects import DeletedProjects

__all__ = ["remove_project"]


async def remove_project(database: Database, archive: Archive, project_id: int) -> int:
    """Remove the files of a deleted project, then the project; return the number of files.

    Raises:
        Unavailable: Postgres or the archive's storage cannot be reached; the call can be repeated.
    """
    deleted = DeletedProjects(database)
    files = await archive.drop(project_id)
    async for _ in deleted.drop_rows(project_id):
        pass
    await deleted.remove(project_id)
    return files
