"""Orphans, which are files that are not in the index, and retired files.

Only the project's own folder is examined, to which no other deployment writes. An orphan that is
intact, and holds changes of this project only, is added to the index: if Postgres was restored from
a backup, orphans hold what was archived after that backup. An orphan that is not intact was left by
a killed process, and is removed. An orphan with changes of another project is not touched.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import datetime
from typing import Literal

import structlog

from store.archive.blocks import BadBlock, Block, Decompressor, intact_blocks
from store.archive.compaction.retention import Record
from store.archive.content_files import Span
from store.archive.event_files import raw_lines
from store.archive.files import Files, StoredFile, file_of, is_part
from store.archive.index import Index, NewFile, insert_file
from store.archive.writer import CONTENTS, EVENTS

__all__ = ["Foreign", "adopt_orphans", "find_orphans", "read_back", "remove_retired"]

log = structlog.get_logger(__name__)

_OF_A_DEPLOYMENT = re.compile(r"[0-9a-f]{32}/")
"""Folder of a deployment. Earlier versions put a project's folder directly below the URL."""


async def find_orphans(
    index: Index, storage: Files, project_id: int, before: datetime
) -> list[StoredFile]:
    """Files that are not in the index and unchanged since ``before``: their writers have died.

    The files are listed before the index is read, so that a file that is being entered is not
    mistaken for an orphan. Files older than the project are ignored, because they were archived
    from another database.
    """
    listed = await asyncio.to_thread(storage.listed, await index.folder(project_id))
    indexed = await index.paths(project_id)
    birth = await index.birth(project_id)
    return [
        file
        for file in listed
        if birth is not None and birth <= file.modified_at <= before and file.path not in indexed
    ]


async def adopt_orphans(
    index: Index, storage: Files, project: str, project_id: int, before: datetime
) -> int:
    """Enter intact orphans into the index, and remove the others; return the number removed."""
    orphans = await find_orphans(index, storage, project_id, before)
    removed = 0
    for orphan in orphans:
        try:
            kind = EVENTS if f"/{EVENTS}/" in orphan.path else CONTENTS
            file = await asyncio.to_thread(read_back, storage, orphan, project, kind)
        except Foreign as error:
            log.warning("archive.orphan_skipped", path=orphan.path, reason=str(error))
        except (BadBlock, FileNotFoundError) as error:
            log.info("archive.orphan_removed", path=orphan.path, reason=str(error))
            await asyncio.to_thread(storage.remove, orphan.path)
            removed += 1
        else:
            log.info("archive.orphan_adopted", path=orphan.path)
            async with index.adding(project_id) as connection:
                await insert_file(connection, project_id, file)
    return removed


async def remove_retired(index: Index, storage: Files, project_id: int, before: datetime) -> int:
    """Remove the files that compaction has replaced; return their number.

    Files in the folder of another deployment are kept: if this database is a copy, its original may
    need them. A shared file is kept too: see ``SharedFiles.remove_unused``.
    """
    retired = await index.retired(project_id, before)
    folder = await index.folder(project_id)
    for path in retired.values():
        is_own = path.startswith(f"{folder}/") or not _OF_A_DEPLOYMENT.match(path)
        if is_own and not is_part(path):
            await asyncio.to_thread(storage.remove, path)
    await index.forget(project_id, list(retired))
    return len(retired)


class Foreign(Exception):
    """A file holds changes of another project, which the message names."""


def read_back(
    storage: Files, orphan: StoredFile, project: str, kind: Literal["events", "contents"]
) -> NewFile:
    """Index entry of an orphan, or of a part of one, derived from its contents; blocks.

    Raises:
        BadBlock: the file is not intact.
        Foreign: the file holds changes of another project.
    """
    if not file_of(orphan.path).endswith(".zst"):
        raise BadBlock("it was not written completely")
    data = storage.read(orphan.path)
    intact = list(intact_blocks(data))
    if kind == EVENTS:
        return _segment(orphan, data, intact, project)
    return _pack(orphan, data, intact)


def _segment(orphan: StoredFile, data: bytes, blocks: list[Block], project: str) -> NewFile:
    lines = [line for block in blocks for line in raw_lines(data, block)]
    records = [Record.of(line) for line in lines]
    others = {record.project for record in records} - {project}
    if others:
        raise Foreign(f"it holds changes of {min(others)}, not of {project}")
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


def _pack(orphan: StoredFile, data: bytes, blocks: list[Block]) -> NewFile:
    decompressor = Decompressor()
    for block in blocks:
        frame = data[block.start : block.start + block.size]
        decompressor.raw(frame, block.raw_size, block.sha256)
    spans = [Span(block.sha256, block.start, block.size, block.raw_size) for block in blocks]
    return NewFile(
        CONTENTS,
        orphan.path,
        hashlib.sha256(data).digest(),
        len(data),
        sum(span.raw_size for span in spans),
        len(spans),
        spans=spans,
    )
