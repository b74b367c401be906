"""Compaction of packs: drops contents that no change refers to, and merges small packs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from store.archive.blocks import BadBlock, Decompressor
from store.archive.compaction.event_merge import contents_of
from store.archive.compaction.replacement import NewEventsArchived, Replacing
from store.archive.content_files import PACK_BYTES, PACK_CONTENTS, Pack, Span, bytes_of
from store.archive.damage import DamagedSegment
from store.archive.files import Files, is_part
from store.archive.index import Index, PackFile
from store.archive.writer import Writing, writing

__all__ = ["ContentMerging"]

_SMALL_SHARE = 1 / 8
_GROUP_BYTES = 4 * PACK_BYTES
_WORTHWHILE_SHARE = 0.2
_MAX_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Plan:
    """A pack, and the size of its part that is kept."""

    pack: PackFile
    live_bytes: int
    thorough: bool = False

    @property
    def is_small(self) -> bool:
        """Return whether the pack is worth merging with another one."""
        return (
            self.pack.size_bytes < _SMALL_SHARE * PACK_BYTES
            and self.pack.entries < _SMALL_SHARE * PACK_CONTENTS
        )

    @property
    def is_wasteful(self) -> bool:
        """Return whether rewriting it alone pays; for small packs, freeing less is enough.

        For a part of a shared file it always does, so that the shared file can go.
        """
        if is_part(self.pack.path):
            return True
        dead = self.pack.size_bytes - self.live_bytes
        for_less = self.is_small or self.thorough
        return dead > (0 if for_less else _WORTHWHILE_SHARE * self.pack.size_bytes)


@dataclass(slots=True)
class _Copied:
    """New packs being built, without what is ``dropped`` of the ``old`` ones."""

    files: Writing
    created_at: datetime
    old: list[_Plan] = field(default_factory=list)
    dropped: set[bytes] = field(default_factory=set)
    pack: Pack = field(default_factory=Pack)

    def add(self, plan: _Plan, frames: Sequence[tuple[Span, bytes]], dead: Sequence[Span]) -> None:
        """Copy the live contents of a pack; blocks."""
        self.old.append(plan)
        self.dropped.update(span.sha256 for span in dead)
        for span, frame in frames:
            self.pack.add_frame(frame, span)
            if self.pack.is_full:
                self.flush()

    def flush(self) -> None:
        """Write the contents collected so far; blocks."""
        if self.pack.spans:
            self.files.write_pack(self.pack, self.created_at)
            self.pack = Pack()


@dataclass(slots=True)
class ContentMerging:
    """One run over one project. ``older_than``: younger packs lose nothing.

    ``thorough``: rewrite a pack even if only one small content is unreferenced. ``complete`` is
    false if contents stay that may be unreferenced, because a file is damaged or new changes came.
    """

    project_id: int
    index: Index
    storage: Files
    replacing: Replacing
    older_than: datetime
    thorough: bool = False
    freed_bytes: int = 0
    dropped_contents: int = 0
    damaged: list[DamagedSegment] = field(default_factory=list)
    complete: bool = True
    _may_drop: bool = True
    _read_events: set[int] = field(default_factory=set)
    _old: set[bytes] = field(default_factory=set)
    _referred: set[bytes] = field(default_factory=set)

    async def run(self) -> None:
        """Merge packs where it is worthwhile. If a file of events is damaged, nothing is dropped.

        Only references to contents in old packs are kept in memory: there may be millions to
        contents in young packs, which are kept in any case.
        """
        packs = await self.index.packs(self.project_id)
        for pack in packs:
            if self._is_old(pack):
                spans = await self.index.pack_spans(self.project_id, pack.segment_id)
                self._old.update(span.sha256 for span in spans)
        self._may_drop = bool(self._old) and await self._learn_references()
        self.complete = self._may_drop or not self._old
        plans = [await self._plan(pack) for pack in packs]
        for group in _worth_merging(plans):
            await self._merge(group)

    async def _learn_references(self) -> bool:
        """Read the references of new files of events; false if a file cannot be read."""
        for segment in await self.index.segments(self.project_id):
            if segment.segment_id not in self._read_events:
                try:
                    hashes = await asyncio.to_thread(contents_of, self.storage, segment)
                except DamagedSegment:
                    return False
                self._referred |= hashes & self._old
                self._read_events.add(segment.segment_id)
        return True

    async def _plan(self, pack: PackFile) -> _Plan:
        spans = await self.index.pack_spans(self.project_id, pack.segment_id)
        live = sum(span.stored_bytes for span in spans if self._stays(pack, span))
        return _Plan(pack, live, self.thorough)

    def _stays(self, pack: PackFile, span: Span) -> bool:
        may_go = self._may_drop and self._is_old(pack)
        return not may_go or span.sha256 in self._referred

    def _is_old(self, pack: PackFile) -> bool:
        return pack.created_at < self.older_than

    async def _merge(self, group: Sequence[_Plan]) -> None:
        files = Writing(self.storage, await self.index.folder(self.project_id))
        copied = _Copied(files, max(plan.pack.created_at for plan in group))
        async with writing(files):
            for plan in group:
                spans = await self.index.pack_spans(self.project_id, plan.pack.segment_id)
                await asyncio.to_thread(self._copy, plan, spans, copied)
            await asyncio.to_thread(copied.flush)
        pays = _pays(copied.old)
        if pays and await self._exchange(copied):
            self.dropped_contents += len(copied.dropped)
        else:
            self.complete = self.complete and not pays
            await files.discard()

    async def _exchange(self, copied: _Copied) -> bool:
        """Replace old files by the new ones; false if new changes need contents to be dropped."""
        old = [plan.pack.segment_id for plan in copied.old]
        for _ in range(_MAX_TRIES):
            events = self._read_events if copied.dropped else None
            try:
                self.freed_bytes += await self.replacing.contents(
                    self.project_id, old, copied.files.files, events
                )
            except NewEventsArchived:
                if not await self._learn_references() or copied.dropped & self._referred:
                    return False
            else:
                return True
        return False

    def _copy(self, plan: _Plan, spans: Sequence[Span], copied: _Copied) -> None:
        """Copy a pack, unless it is damaged; blocks."""
        live = [span for span in spans if self._stays(plan.pack, span)]
        dead = [span for span in spans if not self._stays(plan.pack, span)]
        try:
            frames = self._frames(plan.pack, live)
        except DamagedSegment as error:
            self.damaged.append(error)
            self.complete = False
        else:
            copied.add(plan, frames, dead)

    def _frames(self, pack: PackFile, live: Sequence[Span]) -> list[tuple[Span, bytes]]:
        """Live contents of a pack, verified.

        Raises:
            DamagedSegment: a content differs from what was written.
        """
        decompressor = Decompressor()
        path = self.storage.full(pack.path)
        try:
            data = self.storage.read(pack.path) if live else b""
            frames = [(span, data[span.start : span.end]) for span in live]
            for span, frame in frames:
                bytes_of(decompressor, frame, span)
        except FileNotFoundError:
            raise DamagedSegment(path, "it is missing", lost=len(live)) from None
        except BadBlock as error:
            raise DamagedSegment(path, str(error), lost=1) from None
        return frames


def _worth_merging(plans: Sequence[_Plan]) -> Iterator[list[_Plan]]:
    """Groups of packs to rewrite together; every pack in them would change."""
    group: list[_Plan] = []
    for plan in plans:
        if not plan.is_wasteful and not plan.is_small:
            continue
        if group and sum(other.live_bytes for other in group) + plan.live_bytes > _GROUP_BYTES:
            yield group
            group = []
        group.append(plan)
    if _pays(group):
        yield group


def _pays(group: Sequence[_Plan]) -> bool:
    return len(group) > 1 or any(plan.is_wasteful for plan in group)
