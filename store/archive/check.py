"""Checks every byte of a project's archive."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from store.archive.blocks import BadBlock, blocks
from store.archive.compaction.event_merge import contents_of
from store.archive.damage import DamagedSegment
from store.archive.event_files import raw_lines
from store.archive.files import Files
from store.archive.index import Index, IndexedFile
from store.archive.orphans import find_orphans
from store.archive.shared_upkeep import SharedFiles

__all__ = ["Check", "check"]


@dataclass(frozen=True, slots=True)
class Check:
    """Findings of a check of the archive. Paths are full, hashes in hex.

    ``missing``: files in the index that do not exist. ``orphans``: files that are not in the index;
    compaction adds the intact ones to it, and removes the others. ``lost_contents``: contents that
    changes refer to, but that do not exist.
    """

    files: int = 0
    damaged: tuple[DamagedSegment, ...] = ()
    missing: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    lost_contents: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """True if nothing is wrong."""
        return not (self.damaged or self.missing or self.orphans or self.lost_contents)


async def check(
    index: Index,
    storage: Files,
    shared: SharedFiles,
    project_id: int,
    grace: timedelta,
) -> Check:
    """Check a project's archive: see ``Archive.check``."""
    before = datetime.now(UTC) - grace
    orphans = await find_orphans(index, storage, project_id, before)
    orphans += await shared.orphans_of(project_id, before)
    files = await index.files(project_id)
    damaged: list[DamagedSegment] = []
    missing: list[str] = []
    for file in files:
        try:
            damage = await asyncio.to_thread(_inspect, storage, file)
        except FileNotFoundError:
            if file.path in await index.paths(project_id):  # a purge may have moved it
                missing.append(storage.full(file.path))
            continue
        if damage is not None:
            damaged.append(damage)
    return Check(
        len(files),
        tuple(damaged),
        tuple(missing),
        tuple(storage.full(orphan.path) for orphan in orphans),
        tuple(await _lost_contents(index, storage, project_id)),
    )


def _inspect(storage: Files, file: IndexedFile) -> DamagedSegment | None:
    """Compare a file with what was written; if it differs, find the damaged blocks."""
    data = storage.read(file.path)
    if hashlib.sha256(data).digest() == file.sha256:
        return None
    bad: list[tuple[int, BadBlock]] = []
    intact = 0
    for number, block in enumerate(blocks(data)):
        try:
            lines = raw_lines(data, block)
        except BadBlock as error:
            bad.append((number, error))
        else:
            intact += len(lines) if file.kind == "events" else 1
    reason = str(bad[0][1]) if bad else "its checksum differs from the one that was written"
    numbers = [number for number, _ in bad]
    return DamagedSegment(storage.full(file.path), reason, numbers, max(file.entries - intact, 0))


async def _lost_contents(index: Index, storage: Files, project_id: int) -> list[str]:
    missing: set[str] = set()
    for segment in await index.segments(project_id):
        try:
            hashes = await asyncio.to_thread(contents_of, storage, segment)
        except DamagedSegment:
            continue
        missing |= await _missing_contents(index, project_id, {sha256.hex() for sha256 in hashes})
    return sorted(missing)


async def _missing_contents(index: Index, project_id: int, hashes: Collection[str]) -> set[str]:
    absent = set(hashes) - await index.archived(project_id, hashes)
    return absent - set(await index.reference_sizes(project_id, absent)) if absent else set()
