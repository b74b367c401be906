"""Reads the archive: changes in order, contents by hash, everything verified."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Container, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from events.names import LogPosition
from events.streams.changes import LoggedChange
from store.archive.blocks import BadBlock, Decompressor, blocks
from store.archive.content_files import Span, bytes_of, coalesced
from store.archive.damage import DamagedSegment, Report
from store.archive.event_files import decode_block
from store.archive.files import Files
from store.archive.index import Index, Segment

if TYPE_CHECKING:  # a gateway needs no numpy
    import numpy as np
    import numpy.typing as npt

__all__ = ["Reader"]

_PACKS_AT_ONCE = 4
_MOST_REMEMBERED = 1_000_000


class _Retired(Exception):
    """Compaction has replaced a file that was to be read."""


class Reader:
    """Reads the files of one project at a time."""

    def __init__(self, index: Index, storage: Files) -> None:
        self._index = index
        self._storage = storage

    async def events(
        self, project_id: int, after: int, report: Report
    ) -> AsyncIterator[LoggedChange]:
        """Changes after a position; see ``Archive.events``."""
        read_segments: set[int] = set()
        seen = _OverlapFilter()
        while True:
            segments = await self._index.segments(project_id, after)
            remaining = [segment for segment in segments if segment.segment_id not in read_segments]
            try:
                for segment, following in zip_longest(remaining, remaining[1:]):
                    seen.forget_before(segment.first_position)
                    async for change in self.segment(project_id, segment, report):
                        if change.position > after and seen.is_new(change, following):
                            yield change
                    read_segments.add(segment.segment_id)
            except _Retired:
                continue
            return

    async def events_at(
        self, project_id: int, positions: npt.NDArray[np.int64], report: Report
    ) -> AsyncIterator[LoggedChange]:
        """Changes at positions in ascending order; see ``Archive.events_at``."""
        read_segments: set[int] = set()
        while len(positions):
            segments = await self._index.segments(project_id, int(positions[0]) - 1)
            try:
                for segment in segments:
                    bounds = [segment.first_position, segment.last_position + 1]
                    first, end = positions.searchsorted(bounds).tolist()
                    if first == end or segment.segment_id in read_segments:
                        continue
                    wanted = frozenset(positions[first:end].tolist())
                    async for change in self.segment(project_id, segment, report, wanted):
                        yield change
                    read_segments.add(segment.segment_id)
            except _Retired:
                continue
            return

    async def segment(
        self,
        project_id: int,
        segment: Segment,
        report: Report,
        wanted: Container[int] | None = None,
    ) -> AsyncIterator[LoggedChange]:
        """The changes of one file; damage is reported after all intact changes were read.

        ``wanted``: see ``decode_block``.

        Raises:
            _Retired: the file was removed because its changes are in another one.
        """
        try:
            data = await asyncio.to_thread(self._storage.read, segment.path)
        except FileNotFoundError:
            if not await self._index.is_current(project_id, segment.segment_id, segment.path):
                raise _Retired from None
            report(self._damage(segment.path, "it is missing", missing=segment.entries))
            return
        bad_blocks: list[tuple[int, BadBlock]] = []
        entries = 0
        for number, block in enumerate(blocks(data)):
            try:
                lines, changes = await asyncio.to_thread(decode_block, data, block, wanted)
            except BadBlock as error:
                bad_blocks.append((number, error))
                continue
            entries += lines
            for change in changes:
                yield change
        self._report(segment, data, bad_blocks, entries, report)

    def _report(
        self,
        segment: Segment,
        data: bytes,
        bad_blocks: Sequence[tuple[int, BadBlock]],
        entries: int,
        report: Report,
    ) -> None:
        missing = segment.entries - entries
        if bad_blocks:
            numbers = [number for number, _ in bad_blocks]
            report(self._damage(segment.path, str(bad_blocks[0][1]), numbers, missing))
        elif missing or hashlib.sha256(data).digest() != segment.sha256:
            reason = "it differs from the file that was written"
            report(self._damage(segment.path, reason, missing=max(missing, 0)))

    async def contents(
        self, project_id: int, hashes: Collection[str], report: Report
    ) -> dict[str, bytes]:
        """Bytes by hash; see ``Archive.contents``."""
        packs = await self._index.spans(project_id, hashes)
        limit = asyncio.Semaphore(_PACKS_AT_ONCE)

        async def read(pack: tuple[int, str], spans: Sequence[Span]) -> dict[str, bytes]:
            async with limit:
                return await self._pack(project_id, pack, spans, report)

        parts = await asyncio.gather(*(read(pack, spans) for pack, spans in packs.items()))
        return {sha256: raw for part in parts for sha256, raw in part.items()}

    async def _pack(
        self, project_id: int, pack: tuple[int, str], spans: Sequence[Span], report: Report
    ) -> dict[str, bytes]:
        segment_id, path = pack
        try:
            contents, bad_blocks = await asyncio.to_thread(self._read_spans, path, spans)
        except FileNotFoundError:
            if not await self._index.is_current(project_id, segment_id, path):
                hashes = [span.sha256.hex() for span in spans]
                return await self.contents(project_id, hashes, report)
            report(self._damage(path, "it is missing", missing=len(spans)))
            return {}
        if bad_blocks:
            report(self._damage(path, str(bad_blocks[0]), missing=len(bad_blocks)))
        return contents

    def _read_spans(
        self, path: str, spans: Sequence[Span]
    ) -> tuple[dict[str, bytes], list[BadBlock]]:
        decompressor = Decompressor()
        contents: dict[str, bytes] = {}
        bad_blocks: list[BadBlock] = []
        runs = list(coalesced(spans))
        parts = self._storage.read_ranges(path, [(run[0].start, run[-1].end) for run in runs])
        for run, part in zip(runs, parts, strict=True):
            for span in run:
                offset = span.start - run[0].start
                try:
                    contents[span.sha256.hex()] = bytes_of(
                        decompressor, part[offset : offset + span.size], span
                    )
                except BadBlock as error:
                    bad_blocks.append(error)
        return contents, bad_blocks

    def _damage(
        self, path: str, reason: str, numbers: Sequence[int] = (), missing: int = 0
    ) -> DamagedSegment:
        return DamagedSegment(self._storage.full(path), reason, numbers, missing)


class _OverlapFilter:
    """Detects changes that two files with overlapping ranges of positions both hold."""

    def __init__(self) -> None:
        self._seen: set[LogPosition] = set()

    def is_new(self, change: LoggedChange, following: Segment | None) -> bool:
        """Return whether a change is new; remember it if ``following`` may hold it too."""
        if change.log_position in self._seen:
            return False
        may_return = following is not None and change.position >= following.first_position
        if may_return and len(self._seen) < _MOST_REMEMBERED:
            self._seen.add(change.log_position)
        return True

    def forget_before(self, position: int) -> None:
        """Forget changes before a position, because no later file holds any."""
        self._seen = {seen for seen in self._seen if seen.position >= position}
