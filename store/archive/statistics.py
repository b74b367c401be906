"""Statistics of the archive, for ``status`` and for commands that need its beginning."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from store.archive.compaction.retention import time_of
from store.archive.index import Index

__all__ = ["ArchiveStatistics", "Beginning", "measure"]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Position from which on every change is archived; before, at most each document's last is."""

    position: int

    @property
    def at(self) -> datetime:
        """The position as a time."""
        return time_of(self.position)


@dataclass(frozen=True, slots=True)
class ArchiveStatistics:
    """Counts of a project's archive. ``freed_bytes`` and ``dropped_events`` are totals so far.

    ``raw_bytes`` is the uncompressed size of ``stored_bytes``. Positions are None if there are no
    events.
    """

    files: int
    events: int
    contents: int
    stored_bytes: int
    raw_bytes: int
    first_position: int | None
    last_position: int | None
    freed_bytes: int = 0
    dropped_events: int = 0
    complete_from: int | None = None

    @property
    def beginning(self) -> Beginning | None:
        """Position from which on every change is archived. None if nothing is archived."""
        if self.first_position is None:
            return None
        return Beginning(max(self.first_position, self.complete_from or 0))


async def measure(index: Index, project_id: int) -> ArchiveStatistics:
    """Count a project's files, events and contents."""
    totals, compactions = await index.totals(project_id)
    return ArchiveStatistics(**totals, **compactions)
