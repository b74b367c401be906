"""Compaction of packs: contents that no change refers to go, small packs become large."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from store.archive.blocks import BadBlock, Decompressor
from store.archive.damage import DamagedSegment
from store.archive.event_merging import contents_of
from store.archive.files import Files
from store.archive.index import Index, PackFile
from store.archive.packs import PACK_BYTES, Pack, Span, text_of
from store.archive.replacing import NewcomersInTheWay, Replacing
from store.archive.writing import Writing, writing

__all__ = ["ContentMerging"]

_SMALL_BYTES = PACK_BYTES // 8
_GROUP_BYTES = 4 * PACK_BYTES
_WORTHWHILE_SHARE = 0.2
_MAX_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Plan:
    """A pack, and what of it stays."""

    pack: PackFile
    live: list[Span]

    @property
    def live_bytes(self) -> int:
        return sum(span.stored_bytes for span in self.live)

    @property
    def is_worthwhile(self) -> bool:
        """Whether rewriting it alone frees something; small packs are rewritten for less."""
        dead = self.pack.size_bytes - self.live_bytes
        is_small = self.pack.size_bytes < _SMALL_BYTES
        return dead > (0 if is_small else _WORTHWHILE_SHARE * self.pack.size_bytes)

    @property
    def may_join(self) -> bool:
        """Whether it is small enough to be merged with others."""
        return self.is_worthwhile or self.pack.size_bytes < _SMALL_BYTES


@dataclass(slots=True)
class ContentMerging:
    """One run over one project. ``older_than``: packs that are younger lose nothing."""

    project_id: int
    index: Index
    storage: Files
    replacing: Replacing
    older_than: datetime
    freed_bytes: int = 0
    dropped_contents: int = 0
    damaged: list[DamagedSegment] = field(default_factory=list)
    _known_events: dict[int, frozenset[bytes]] = field(default_factory=dict)

    async def run(self) -> None:
        """Merge what is worth it. Where a file of events is damaged, nothing is let go of."""
        packs = await self.index.packs(self.project_id)
        may_drop = await self._learn_references()
        referred = self._referred() if may_drop else None
        spans = await self.index.pack_spans(self.project_id, [pack.segment_id for pack in packs])
        plans = [self._plan(pack, spans[pack.segment_id], referred) for pack in packs]
        for group in _worth_merging(plans):
            await self._merge(group, spans)

    async def _learn_references(self) -> bool:
        """Read the files of events that aren't known yet; false: one can't be read."""
        for segment in await self.index.segments(self.project_id):
            if segment.segment_id not in self._known_events:
                try:
                    found = await asyncio.to_thread(contents_of, self.storage, segment)
                except DamagedSegment:
                    return False
                self._known_events[segment.segment_id] = frozenset(found)
        return True

    def _referred(self) -> Set[bytes]:
        return frozenset().union(*self._known_events.values())

    def _plan(self, pack: PackFile, spans: list[Span], referred: Set[bytes] | None) -> _Plan:
        if referred is None or pack.created_at >= self.older_than:
            return _Plan(pack, spans)
        return _Plan(pack, [span for span in spans if span.sha256 in referred])

    async def _merge(self, group: Sequence[_Plan], spans: Mapping[int, list[Span]]) -> None:
        files = Writing(self.storage, self.project_id)
        async with writing(files):
            taken = await asyncio.to_thread(self._copy, group, files)
        if not _pays(taken):
            await files.discard()
            return
        held = {span.sha256 for plan in taken for span in spans[plan.pack.segment_id]}
        dropped = held - {span.sha256 for plan in taken for span in plan.live}
        if await self._exchange([plan.pack.segment_id for plan in taken], files, dropped):
            self.dropped_contents += len(dropped)
        else:
            await files.discard()

    async def _exchange(self, old: Sequence[int], files: Writing, dropped: Set[bytes]) -> bool:
        """Let the new files count; false: what came in meanwhile needs what was to go."""
        for _ in range(_MAX_TRIES):
            events = list(self._known_events) if dropped else None
            try:
                self.freed_bytes += await self.replacing.contents(
                    self.project_id, old, files.files, events
                )
            except NewcomersInTheWay:
                if not await self._learn_references() or dropped & self._referred():
                    return False
            else:
                return True
        return False

    def _copy(self, group: Sequence[_Plan], files: Writing) -> list[_Plan]:
        """Write what is live in a group of packs; which of them were whole."""
        created_at = max(plan.pack.created_at for plan in group)
        taken: list[_Plan] = []
        pack = Pack()
        for plan in group:
            try:
                frames = self._frames(plan)
            except DamagedSegment as error:
                self.damaged.append(error)
                continue
            taken.append(plan)
            for span, frame in frames:
                pack.add_frame(frame, span)
                if pack.size >= PACK_BYTES:
                    files.write_pack(pack, created_at)
                    pack = Pack()
        if pack.spans:
            files.write_pack(pack, created_at)
        return taken

    def _frames(self, plan: _Plan) -> list[tuple[Span, bytes]]:
        """What is live in a pack, verified.

        Raises:
            DamagedSegment: something isn't what was written.
        """
        ranges = [(span.start, span.end) for span in plan.live]
        decompressor = Decompressor()
        try:
            frames = self.storage.read_ranges(plan.pack.path, ranges) if ranges else []
            for span, frame in zip(plan.live, frames, strict=True):
                text_of(decompressor, frame, span)
        except (FileNotFoundError, BadBlock) as error:
            path = self.storage.full(plan.pack.path)
            raise DamagedSegment(path, str(error), lost=1) from None
        return list(zip(plan.live, frames, strict=True))


def _worth_merging(plans: Sequence[_Plan]) -> Iterator[list[_Plan]]:
    """Groups of packs to rewrite as one; none would stay as it is."""
    group: list[_Plan] = []
    for plan in plans:
        if not plan.may_join:
            continue
        if group and sum(one.live_bytes for one in group) + plan.live_bytes > _GROUP_BYTES:
            yield group
            group = []
        group.append(plan)
    if _pays(group):
        yield group


def _pays(group: Sequence[_Plan]) -> bool:
    return len(group) > 1 or any(plan.is_worthwhile for plan in group)
