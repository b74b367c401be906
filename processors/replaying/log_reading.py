"""The log of one project: what the archive keeps, and what the streams hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from redis.asyncio import Redis

from events.change_log import Admit, LoggedChange, StreamedChange, read_changes
from events.names import Names
from processors.replaying.folding import Fold
from processors.replaying.stream_places import entry_id_before, stream_ends
from store.archive import Archive, DamagedSegment

__all__ = ["ProjectLog"]


@dataclass
class ProjectLog:
    """Reads the log of a project into folds.

    ``admit`` tells which changes of the streams count; what is archived does.
    ``damaged``: files of the archive that can't be read whole, by path.
    """

    project: str
    archive: Archive
    redis: Redis
    names: Names
    admit: Admit
    damaged: dict[str, DamagedSegment] = field(default_factory=dict)
    _ends: Mapping[str, str] = field(default_factory=dict)
    _streams_begin: int | None = None

    async def read(self, fold: Fold) -> None:
        """Fold everything that was ever published and not compacted away.

        The streams come first: what they let go of between the two is in the archive by then.

        Raises:
            Unavailable: Redis, Postgres or the archive can't be read.
        """
        self.damaged.clear()
        self._ends = await stream_ends(self.redis, self.names)
        async for change in self._streams({}):
            fold.add(change)
        self._streams_begin = fold.earliest
        await self.read_archive(fold, -1)

    async def beginning(self, fold: Fold) -> int | None:
        """The position that the log is whole from; None: it is empty."""
        archived = await self.archive.beginning(self.project)
        if archived is None:
            return fold.earliest
        return min(archived.position, self._streams_begin or archived.position)

    async def read_new(self, fold: Fold, first: int | None = None) -> None:
        """Fold what the streams got since the last time, or from a position on.

        Raises:
            Unavailable: Redis can't be read.
        """
        begin, self._ends = self._ends, await stream_ends(self.redis, self.names)
        if first is not None:
            begin = dict.fromkeys(self._ends, entry_id_before(first))
        async for change in self._streams(begin):
            fold.add(change)

    async def read_archive(self, fold: Fold, after: int) -> None:
        """Fold what the archive has after a position.

        Raises:
            Unavailable: Postgres or the archive can't be read.
        """
        async for change in self._archived(after):
            fold.add(change)

    async def _streams(self, after: Mapping[str, str]) -> AsyncIterator[LoggedChange]:
        async for change in read_changes(self.redis, self.names, after, self._admit):
            yield change

    async def _admit(self, changes: Sequence[StreamedChange]) -> Sequence[StreamedChange]:
        return await self.admit([change for change in changes if change.project == self.project])

    async def _archived(self, after: int) -> AsyncIterator[LoggedChange]:
        async for change in self.archive.events(self.project, after, damaged=self._note):
            yield change

    def _note(self, error: DamagedSegment) -> None:
        self.damaged[error.path] = error
