"""Archives in a directory, and damage to their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from events.streams.changes import LoggedChange
from store.archive import Archive
from store.generations.catalog import Projects, Recipe
from store.postgres.pool import Database

__all__ = ["ArchiveAt", "flip"]


@dataclass(frozen=True)
class ArchiveAt:
    """Archive under a directory, with access to its files."""

    archive: Archive
    projects: Projects
    directory: Path

    @classmethod
    def of(cls, worker: Database, directory: Path) -> ArchiveAt:
        projects = Projects(worker, Recipe("test/model"))
        return cls(Archive(worker, projects, str(directory)), projects, directory)

    def as_of(self, worker: Database) -> ArchiveAt:
        """The same archive as another process sees it."""
        return ArchiveAt.of(worker, self.directory)

    async def changes(self, after: int = -1, project: str = "alpha") -> list[LoggedChange]:
        """All archived changes."""
        return [change async for change in self.archive.events(project, after)]

    async def positions(self) -> list[int]:
        """Positions of the archived changes."""
        return [change.position for change in await self.changes()]

    def files(self, kind: str) -> list[Path]:
        """Files of ``events`` or ``contents``, of all projects."""
        return sorted(self.directory.glob(f"*/*/{kind}/*.zst"))


def flip(path: Path, at_byte: int) -> None:
    """Change one bit of a file; a negative offset counts from the end."""
    data = bytearray(path.read_bytes())
    data[at_byte] ^= 0x10
    path.write_bytes(data)
