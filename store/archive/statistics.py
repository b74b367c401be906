"""What the archive holds, for ``status`` and for who asks how far back it goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from store.archive.index import Index
from store.archive.retention import time_of

__all__ = ["ArchiveStatistics", "Beginning", "measure"]


@dataclass(frozen=True, slots=True)
class Beginning:
    """From where on the archive has every change; before, it has at most each document's last."""

    position: int

    @property
    def at(self) -> datetime:
        """The same as a time."""
        return time_of(self.position)


@dataclass(frozen=True, slots=True)
class ArchiveStatistics:
    """A project's part of the archive. What compaction let go of counts from the project's birth.

    ``raw_bytes`` is what ``stored_bytes`` hold uncompressed. Positions are None where there are no
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
        """None: nothing is archived."""
        if self.first_position is None:
            return None
        return Beginning(max(self.first_position, self.complete_from or 0))


async def measure(index: Index, project_id: int) -> ArchiveStatistics:
    """Count."""
    totals, compactions = await index.totals(project_id)
    return ArchiveStatistics(**totals, **compactions)
