"""The log of one project: the changes in the archive and in the streams."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Self

import numpy as np
from redis.asyncio import Redis

from events.deployment import follow_stamp
from events.names import Lane, LogPosition, Names, Topic, change_streams
from events.server.connection import redis_errors
from events.streams.changes import (
    Admit,
    LoggedChange,
    StreamedChange,
    read_changes,
    read_entries,
)
from processors.replay.fold import Fold, LastChange, Rows, parts_of
from processors.replay.verification import Difference, NotSwitched
from processors.wiring.operator_tools import OperatorTools
from store.archive import Archive, DamagedSegment

__all__ = ["EntriesByProject", "ProjectLog", "entry_id_before", "stream_ends"]

_ENTRIES_AT_ONCE = 250


@dataclass
class ProjectLog:
    """Reader of the log of a project.

    ``admit`` selects the changes of the streams that count; archived changes always count.
    ``entries``: those of the streams by project, where the logs of several projects are read; None
    for one project. ``damaged``: archive files that can't be read completely, by path.
    """

    project: str
    archive: Archive
    redis: Redis
    names: Names
    admit: Admit
    entries: EntriesByProject | None = None
    damaged: dict[str, DamagedSegment] = field(default_factory=dict)
    _ends: Mapping[str, str] = field(default_factory=dict)
    _streams_begin: int | None = None

    @classmethod
    def of(
        cls, project: str, tools: OperatorTools, entries: EntriesByProject | None = None
    ) -> Self:
        """Build the reader of a project; nothing is read yet."""
        admit = tools.admission.admitted
        return cls(project, tools.archive, tools.redis, tools.names, admit, entries)

    async def read(self, fold: Fold) -> None:
        """Fold all changes that were published and not removed by compaction.

        The streams are read first: a change that is trimmed afterwards is in the archive already.

        Raises:
            Unavailable: Redis, Postgres or the archive can't be read.
        """
        self.damaged.clear()
        await follow_stamp(self.redis, self.names)
        self._ends = await stream_ends(self.redis, self.names)
        await self._add_streamed(fold, {})
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
        await follow_stamp(self.redis, self.names)
        begin, self._ends = self._ends, await stream_ends(self.redis, self.names)
        if first is not None:
            begin = dict.fromkeys(self._ends, entry_id_before(first))
        await self._add_streamed(fold, begin)

    async def read_archive(self, fold: Fold, after: int) -> None:
        """Fold changes of the archive after a position.

        Raises:
            Unavailable: Postgres or the archive can't be read.
        """
        async for change in self.archive.events(self.project, after, damaged=self._add_damage):
            fold.add(change)

    async def last_changes(self, fold: Fold, rows: Rows) -> AsyncIterator[LastChange]:
        """Read the last changes of documents again; ``rows`` are in the order of the log.

        Those in the streams come first: what is trimmed from them is in the archive by then.

        Raises:
            NotSwitched: a change can't be read any more.
            Unavailable: Redis, Postgres or the archive can't be read.
        """
        unread = _Unread(fold, rows)
        entries = fold.entries(rows)
        streamed = rows[entries != 0]
        for start in range(0, len(streamed), _ENTRIES_AT_ONCE):
            part = streamed[start : start + _ENTRIES_AT_ONCE].tolist()
            own = [LogPosition(fold[row].entry, fold.log_position(row).partition) for row in part]
            for change in await read_entries(self.redis, self.names, own):
                for last in unread.take(change.change):
                    yield last
        positions = fold.positions(unread.rows())
        async for archived in self.archive.events_at(
            self.project, positions, damaged=self._add_damage
        ):
            for last in unread.take(archived):
                yield last
        unread.check(self.project, self.damaged.values())

    async def _add_streamed(self, fold: Fold, after: Mapping[str, str]) -> None:
        async for change in self._streamed(after):
            fold.add(change.change, change.own.position)

    async def _streamed(self, after: Mapping[str, str]) -> AsyncIterator[StreamedChange]:
        if self.entries is None:
            async for change in read_changes(self.redis, self.names, after, self._admit):
                yield change
            return
        own = await self.entries.of(self.project, after)
        for start in range(0, len(own), _ENTRIES_AT_ONCE):
            part = own[start : start + _ENTRIES_AT_ONCE]
            for change in await self.admit(await read_entries(self.redis, self.names, part)):
                yield change

    async def _admit(self, changes: Sequence[StreamedChange]) -> Sequence[StreamedChange]:
        return await self.admit([change for change in changes if change.project == self.project])

    def _add_damage(self, error: DamagedSegment) -> None:
        self.damaged[error.path] = error


class EntriesByProject:
    """Positions of the stream entries of each project, in 10 bytes each.

    With it, the logs of many projects are read without reading all streams for each of them.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._read_until: dict[str, str] = {}
        self._positions: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self._partitions: defaultdict[str, array[int]] = defaultdict(lambda: array("H"))

    async def of(self, project: str, after: Mapping[str, str]) -> Sequence[LogPosition]:
        """Own positions of the entries of a project, also of those that were added last.

        ``after``: see ``read_changes``. Entries that were trimmed since are not left out.

        Raises:
            Unavailable: Redis can't be reached.
        """
        await self._extend()
        positions = np.array(self._positions[project], np.int64)
        partitions = np.array(self._partitions[project], np.uint16)
        is_after = np.zeros(len(positions), np.bool_)
        for stream in change_streams(self._names):
            first = after.get(self._names.stream(*stream), "0-0")
            last, _ = LogPosition.of_entry(stream.topic.lane, stream.partition, first)
            is_own = (partitions == stream.partition) & (positions & 1 == last & 1)
            is_after |= is_own & (positions > last)
        chosen = zip(positions[is_after].tolist(), partitions[is_after].tolist(), strict=True)
        return [LogPosition(position, partition) for position, partition in chosen]

    async def _extend(self) -> None:
        async for change in read_changes(self._redis, self._names, self._read_until):
            position, partition = change.own
            self._positions[change.project].append(position)
            self._partitions[change.project].append(partition)
            self._read_until[self._names.stream(*change.own.stream)] = change.own.entry_id


class _Unread:
    """Rows of a fold whose last changes are to be read again."""

    def __init__(self, fold: Fold, rows: Rows) -> None:
        self._fold = fold
        self._rows = rows
        self._wanted = np.zeros(len(fold), np.bool_)
        self._wanted[rows] = True

    def take(self, change: LoggedChange) -> Iterator[LastChange]:
        """Yield the documents whose last change this is, unless they were yielded before."""
        for last in parts_of(change):
            row = self._fold.row_of(last.key)
            if row is None or row >= len(self._wanted) or not self._wanted[row]:
                continue
            if self._fold.log_position(row) == change.log_position:
                self._wanted[row] = False
                self._fold.refresh(last)
                yield last

    def rows(self) -> Rows:
        """Rows that were not read yet, in the order of the log."""
        return self._rows[self._wanted[self._rows]]

    def check(self, project: str, damaged: Iterable[DamagedSegment]) -> None:
        """Make sure that all were read.

        Raises:
            NotSwitched: some were not.
        """
        rows = self.rows()
        if not len(rows):
            return
        damage = "".join(f"; {error.message}" for error in damaged)
        raise NotSwitched(
            f"the last changes of {len(rows):,} documents of {project} were in the log, and can't "
            f"be read again: {{documents}}{damage}; the live generation is unchanged",
            "replay again",
            differences=[
                Difference.of(self._fold.key(row), "its last change can't be read")
                for row in rows.tolist()
            ],
        )


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
