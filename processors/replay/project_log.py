"""The log of one project: the changes in the archive and in the streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Self

from redis.asyncio import Redis

from events.names import Lane, LogPosition, Names, Topic
from events.server.connection import redis_errors
from events.streams.changes import Admit, LoggedChange, StreamedChange, read_changes
from processors.replay.fold import Fold
from processors.wiring.operator_tools import OperatorTools
from store.archive import Archive, DamagedSegment

__all__ = ["ProjectLog", "entry_id_before", "stream_ends"]


@dataclass
class ProjectLog:
    """Reader of the log of a project.

    ``admit`` selects the changes of the streams that count; archived changes always count.
    ``damaged``: archive files that can't be read completely, by path.
    """

    project: str
    archive: Archive
    redis: Redis
    names: Names
    admit: Admit
    damaged: dict[str, DamagedSegment] = field(default_factory=dict)
    _ends: Mapping[str, str] = field(default_factory=dict)
    _streams_begin: int | None = None

    @classmethod
    def of(cls, project: str, tools: OperatorTools) -> Self:
        """Build the reader of a project; nothing is read yet."""
        return cls(project, tools.archive, tools.redis, tools.names, tools.admission.admitted)

    async def read(self, fold: Fold) -> None:
        """Fold all changes that were published and not removed by compaction.

        The streams are read first: a change that is trimmed afterwards is in the archive already.

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
        """Position from which the log is complete. Returns None if the log is empty."""
        archived = await self.archive.beginning(self.project)
        if archived is None:
            return fold.earliest
        return min(archived.position, self._streams_begin or archived.position)

    async def read_new(self, fold: Fold, first: int | None = None) -> None:
        """Fold changes added to the streams since the last read, or from position ``first`` on.

        Raises:
            Unavailable: Redis can't be read.
        """
        begin, self._ends = self._ends, await stream_ends(self.redis, self.names)
        if first is not None:
            begin = dict.fromkeys(self._ends, entry_id_before(first))
        async for change in self._streams(begin):
            fold.add(change)

    async def read_archive(self, fold: Fold, after: int) -> None:
        """Fold changes of the archive after a position.

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
        async for change in self.archive.events(self.project, after, damaged=self._add_damage):
            yield change

    def _add_damage(self, error: DamagedSegment) -> None:
        self.damaged[error.path] = error


async def stream_ends(redis: Redis, names: Names) -> dict[str, str]:
    """Read the id of the last entry of each stream of changes, by key; '0-0' if it is empty.

    Raises:
        Unavailable: Redis can't be reached.
    """
    ends: dict[str, str] = {}
    with redis_errors():
        for lane, partition in product(Lane, range(names.partitions)):
            key = names.stream(Topic.of_lane(lane), partition)
            last: Any = await redis.xrevrange(key, count=1)
            ends[key] = last[0][0].decode() if last else "0-0"
    return ends


def entry_id_before(position: int) -> str:
    """Entry id that precedes every entry whose position may be ``position`` or later."""
    milliseconds = int(LogPosition(position, 0).entry_id.partition("-")[0])
    return f"{max(0, milliseconds - 1)}-0"
