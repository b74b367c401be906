"""Compaction of event files: drops changes past retention, and merges small files."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge

from events.names import LogPosition
from store.archive.blocks import BadBlock, blocks
from store.archive.compaction.replacement import Replacing
from store.archive.compaction.retention import Record, Retention
from store.archive.damage import DamagedSegment
from store.archive.event_files import SEGMENT_BYTES, Line, raw_lines
from store.archive.files import Files, is_part
from store.archive.index import Segment
from store.archive.writer import Writing, writing

__all__ = ["EventMerging", "contents_of", "read_records"]

_SMALL_BYTES = SEGMENT_BYTES // 4
_GROUP_BYTES = 8 * SEGMENT_BYTES
_WORTHWHILE_SHARE = 0.05


@dataclass(slots=True)
class Merged:
    """Changes that were dropped while merging a group of files."""

    dropped: int = 0
    complete_from: int | None = None

    def drop(self, record: Record) -> None:
        """Count a change that is left out."""
        self.dropped += 1
        self.complete_from = max(self.complete_from or 0, record.position + 1)


@dataclass(slots=True)
class EventMerging:
    """One run over one project. Damaged files are not changed, and listed in ``damaged``.

    An error in an earlier version could add changes of other projects. ``foreign``: files that hold
    only such changes, and belong to another project; in other files these changes are dropped.
    """

    project: str
    project_id: int
    folder: str
    storage: Files
    replacing: Replacing
    retention: Retention
    freed_bytes: int = 0
    dropped_events: int = 0
    damaged: list[DamagedSegment] = field(default_factory=list)
    foreign: list[Segment] = field(default_factory=list)
    _mixed: set[int] = field(default_factory=set)

    async def run(self, segments: Sequence[Segment]) -> None:
        """Merge files where it is worthwhile.

        Large files that are younger than the retention are not read, because none of their changes
        is dropped, unless they are parts of shared files.
        """
        wanted = [
            segment
            for segment in segments
            if segment.first_position < self.retention.limit
            or segment.size_bytes < _SMALL_BYTES
            or is_part(segment.path)
        ]
        intact = [segment for segment in wanted if await asyncio.to_thread(self._learn, segment)]
        droppable = {
            segment.segment_id: await asyncio.to_thread(self._count, segment) for segment in intact
        }
        for group in _worth_merging(intact, droppable):
            await self._merge(group)

    def _learn(self, segment: Segment) -> bool:
        """Read the changes of a file; false if it is damaged or foreign and must be ignored."""
        project_records = others = 0
        try:
            for record, _ in read_records(self.storage, segment):
                if record.project == self.project:
                    project_records += 1
                    self.retention.learn(record)
                else:
                    others += 1
        except DamagedSegment as error:
            self.damaged.append(error)
            return False
        if others and not project_records:
            self.foreign.append(segment)
            return False
        if others:
            self._mixed.add(segment.segment_id)
        return True

    def _keeps(self, record: Record) -> bool:
        return record.project == self.project and self.retention.keeps(record)

    def _count(self, segment: Segment) -> int:
        """Number of a file's changes that may be dropped."""
        is_young = segment.first_position >= self.retention.limit
        if is_young and segment.segment_id not in self._mixed:
            return 0
        records = read_records(self.storage, segment)
        return sum(not self._keeps(record) for record, _ in records)

    async def _merge(self, group: Sequence[Segment]) -> None:
        files = Writing(self.storage, self.folder)
        merged = Merged()
        async with writing(files):
            await asyncio.to_thread(files.write_lines, self._retained(group, merged))
        self.freed_bytes += await self.replacing.events(
            self.project_id,
            [segment.segment_id for segment in group],
            files.files,
            dropped=merged.dropped,
            complete_from=merged.complete_from,
        )
        self.dropped_events += merged.dropped

    def _retained(self, group: Sequence[Segment], merged: Merged) -> Iterator[Line]:
        """Lines in log order, each once."""
        readers = [read_records(self.storage, segment) for segment in group]
        before: LogPosition | None = None
        for record, line in merge(*readers, key=lambda pair: pair[0].log_position):
            if record.log_position == before:
                continue
            before = record.log_position
            if self._keeps(record):
                yield Line(record.position, line)
            else:
                merged.drop(record)


def _worth_merging(
    segments: Sequence[Segment], droppable: dict[int, int]
) -> Iterator[Sequence[Segment]]:
    """Groups of files to rewrite together, in log order; every file in them would change.

    A part of a shared file always gets a file of its project, so that the shared one can go.
    """
    group: list[Segment] = []
    for segment in segments:
        share = droppable[segment.segment_id] / max(segment.entries, 1)
        is_large = segment.size_bytes >= _SMALL_BYTES and not is_part(segment.path)
        if is_large and share < _WORTHWHILE_SHARE:
            continue
        if group and sum(other.size_bytes for other in group) + segment.size_bytes > _GROUP_BYTES:
            yield group
            group = []
        group.append(segment)
    if len(group) > 1 or any(
        droppable[segment.segment_id] or is_part(segment.path) for segment in group
    ):
        yield group


def read_records(storage: Files, segment: Segment) -> Iterator[tuple[Record, bytes]]:
    """The changes of a file with their lines; blocks.

    Raises:
        DamagedSegment: the file differs from what was written.
    """
    try:
        data = storage.read(segment.path)
    except FileNotFoundError:
        raise _damage(storage, segment, "it is missing") from None
    if hashlib.sha256(data).digest() != segment.sha256:
        raise _damage(storage, segment, "its checksum differs from the one that was written")
    for block in blocks(data):
        try:
            lines = raw_lines(data, block)
        except BadBlock as error:
            raise _damage(storage, segment, str(error)) from None
        for line in lines:
            yield Record.of(line), line


def contents_of(storage: Files, segment: Segment) -> set[bytes]:
    """Hashes of the contents that the changes of a file refer to; blocks.

    Raises:
        DamagedSegment: as ``read_records``.
    """
    records = (record for record, _ in read_records(storage, segment))
    return {record.content for record in records if record.content is not None}


def _damage(storage: Files, segment: Segment, reason: str) -> DamagedSegment:
    return DamagedSegment(storage.full(segment.path), reason, lost=segment.entries)
