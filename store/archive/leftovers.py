"""Files that no index knows, and files that nobody needs any more.

Only files of the project's own folder are looked at, which no other deployment writes to. An orphan
that is whole, and holds changes of this project only, is taken in: where Postgres was restored from
a backup, orphans are what was archived since. One that isn't whole is what a killed process left.
One with changes of another project is left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator
from datetime import datetime

import structlog

from store.archive.blocks import BadBlock, Block, Decompressor, blocks
from store.archive.files import Files, StoredFile
from store.archive.index import Index, NewFile, insert_file
from store.archive.packs import Span
from store.archive.retention import Record
from store.archive.segments import raw_lines
from store.archive.writing import CONTENTS, EVENTS

__all__ = ["find_orphans", "remove_retired", "take_in_orphans"]

log = structlog.get_logger(__name__)

_OF_A_DEPLOYMENT = re.compile(r"[0-9a-f]{32}/")
"""Earlier versions put a project's folder directly below the archive's URL."""


async def find_orphans(
    index: Index, storage: Files, project_id: int, before: datetime
) -> list[StoredFile]:
    """Files that no index knows, untouched since ``before``: somebody died who wrote them.

    The files are listed first, so that one that is entered meanwhile isn't taken for an orphan.
    What is older than the project is none of its own: it was archived from another database.
    """
    listed = await asyncio.to_thread(storage.listed, await index.folder(project_id))
    known = await index.paths(project_id)
    birth = await index.birth(project_id)
    return [
        file for file in listed if birth <= file.modified_at <= before and file.path not in known
    ]


async def take_in_orphans(
    index: Index, storage: Files, project: str, project_id: int, before: datetime
) -> int:
    """Enter whole orphans into the index, and remove the others; how many were removed."""
    orphans = await find_orphans(index, storage, project_id, before)
    removed = 0
    for orphan in orphans:
        try:
            file = await asyncio.to_thread(_read_back, storage, orphan, project)
        except _Foreign as error:
            log.warning("archive.orphan_left_alone", path=orphan.path, reason=str(error))
        except (BadBlock, FileNotFoundError) as error:
            log.info("archive.orphan_removed", path=orphan.path, reason=str(error))
            await asyncio.to_thread(storage.remove, orphan.path)
            removed += 1
        else:
            log.info("archive.orphan_taken_in", path=orphan.path)
            async with index.adding(project_id) as connection:
                await insert_file(connection, project_id, file)
    return removed


async def remove_retired(index: Index, storage: Files, project_id: int, before: datetime) -> int:
    """Remove the files that compaction put others in place of; how many there were.

    Files in the folder of another deployment stay: the original of this database, if it is a copy,
    may need them.
    """
    retired = await index.retired(project_id, before)
    own = await index.folder(project_id)
    for path in retired.values():
        if path.startswith(f"{own}/") or not _OF_A_DEPLOYMENT.match(path):
            await asyncio.to_thread(storage.remove, path)
    await index.forget(project_id, list(retired))
    return len(retired)


class _Foreign(Exception):
    """A file holds changes of another project; says of which."""


def _read_back(storage: Files, orphan: StoredFile, project: str) -> NewFile:
    """What the index would have said of a file, had it been told; blocks.

    Raises:
        BadBlock: the file isn't whole.
        _Foreign: it isn't of this project.
    """
    if not orphan.path.endswith(".zst"):
        raise BadBlock("it was never finished")
    data = storage.read(orphan.path)
    found = list(_sound_blocks(data))
    if f"/{EVENTS}/" in orphan.path:
        return _segment(orphan, data, found, project)
    return _pack(orphan, data, found)


def _sound_blocks(data: bytes) -> Iterator[Block]:
    if not data:
        raise BadBlock("it is empty")
    for block in blocks(data):
        if isinstance(block, BadBlock):
            raise block
        yield block


def _segment(orphan: StoredFile, data: bytes, found: list[Block], project: str) -> NewFile:
    lines = [line for block in found for line in raw_lines(data, block)]
    records = [Record.of(line) for line in lines]
    others = {record.project for record in records} - {project}
    if others:
        raise _Foreign(f"it holds changes of {min(others)}, not of {project}")
    positions = [record.position for record in records]
    return NewFile(
        EVENTS,
        orphan.path,
        hashlib.sha256(data).digest(),
        len(data),
        sum(map(len, lines)),
        len(lines),
        min(positions),
        max(positions),
    )


def _pack(orphan: StoredFile, data: bytes, found: list[Block]) -> NewFile:
    decompressor = Decompressor()
    for block in found:
        frame = data[block.start : block.start + block.size]
        decompressor.raw(frame, block.raw_size, block.sha256)
    spans = [Span(block.sha256, block.start, block.size, block.raw_size) for block in found]
    return NewFile(
        CONTENTS,
        orphan.path,
        hashlib.sha256(data).digest(),
        len(data),
        sum(span.raw_size for span in spans),
        len(spans),
        spans=spans,
    )
