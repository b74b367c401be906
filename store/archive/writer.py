"""Writing of archive files, which become valid once they are in the index, and appending."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Literal
from uuid import uuid4

import structlog

from events.streams.changes import LoggedChange
from runtime.errors import Unavailable
from store.archive.claims import Claims, claim
from store.archive.content_files import Pack, encode_contents
from store.archive.event_files import EncodedEvents, Line, encode_events, line_of
from store.archive.files import Files
from store.archive.index import Index, NewFile, archived, enter_files

__all__ = [
    "CONTENTS",
    "EVENTS",
    "LONGEST_S",
    "Appended",
    "Appender",
    "Writing",
    "writing",
]

EVENTS: Literal["events"] = "events"
CONTENTS: Literal["contents"] = "contents"

log = structlog.get_logger(__name__)

_MAX_TRIES = 3
_FETCHED_BYTES = 32 * 2**20
LONGEST_S = 1800.0
"""Longest time between the writing of a file and its entry. Compaction treats files that are not in
the index after twice this time as orphans."""


class Writing:
    """Writes related files of one project. ``files``: the files that were written."""

    def __init__(self, storage: Files, folder: str) -> None:
        """``folder``: the project's folder."""
        self._storage = storage
        self._folder = folder
        self.files: list[NewFile] = []

    def put(self, kind: Literal["events", "contents"], name: str, data: bytes) -> str:
        """Write data under a new name; return the path. Blocks."""
        path = f"{self._folder}/{kind}/{name}.zst"
        self._storage.write(path, data)
        return path

    async def contents(self, contents: Mapping[str, bytes]) -> None:
        """Write packs of texts by hash (hex)."""
        await asyncio.to_thread(self.write_contents, contents)

    async def events(self, changes: Iterable[LoggedChange]) -> None:
        """Write claimed changes in order of their positions."""
        await asyncio.to_thread(self.write_events, changes)

    @property
    def hashes(self) -> set[str]:
        """Hashes (hex) of the contents that were written."""
        return {span.sha256.hex() for file in self.files for span in file.spans}

    def write_pack(self, pack: Pack, created_at: datetime | None = None) -> None:
        """Write a pack with the creation time ``created_at``, or the current time; blocks."""
        data = pack.data
        path = self.put(CONTENTS, uuid4().hex, data)
        self.files.append(
            NewFile(
                CONTENTS,
                path,
                hashlib.sha256(data).digest(),
                len(data),
                pack.raw_bytes,
                len(pack.spans),
                spans=pack.spans,
                created_at=created_at,
            )
        )

    def _write_segment(self, events: EncodedEvents) -> None:
        data = events.data
        path = self.put(EVENTS, f"{events.first_position:019d}-{uuid4().hex[:12]}", data)
        self.files.append(
            NewFile(
                EVENTS,
                path,
                hashlib.sha256(data).digest(),
                len(data),
                events.raw_bytes,
                events.entries,
                events.first_position,
                events.last_position,
            )
        )

    def write_contents(self, contents: Mapping[str, bytes]) -> None:
        """Write packs of texts by hash (hex); blocks."""
        for pack in encode_contents(contents):
            self.write_pack(pack)

    def write_events(self, changes: Iterable[LoggedChange]) -> None:
        """Write claimed changes in order of their positions; blocks."""
        self.write_lines(map(line_of, sorted(changes, key=lambda change: change.log_position)))

    def write_lines(self, lines: Iterable[Line]) -> None:
        """Write files of events; blocks."""
        for events in encode_events(lines):
            self._write_segment(events)

    async def discard(self) -> None:
        """Remove the written files; a file that cannot be removed becomes an orphan."""
        for file in self.files:
            try:
                await asyncio.to_thread(self._storage.remove, file.path)
            except Unavailable as error:
                log.warning("archive.discard_failed", path=file.path, error=str(error))


@asynccontextmanager
async def writing(files: Writing) -> AsyncIterator[None]:
    """Remove the written files if the block raises."""
    try:
        yield
    except BaseException:
        await files.discard()
        raise


@dataclass(frozen=True, slots=True)
class Appended:
    """Numbers of archived items. ``missing``: contents that do not exist, but are referred to."""

    events: int = 0
    contents: int = 0
    missing: int = 0


class _ContentReleased(Exception):
    """Content that was archived when the append began has been dropped since."""


class Appender:
    """Archives changes of one project at a time."""

    def __init__(self, index: Index, storage: Files) -> None:
        self._index = index
        self._storage = storage

    async def append(self, project_id: int, changes: Sequence[LoggedChange]) -> Appended:
        """Archive changes, and the contents that they refer to; see ``Archive.append``."""
        claims = await asyncio.to_thread(claim, changes)
        for _ in range(_MAX_TRIES):
            try:
                return await self._append(project_id, claims)
            except _ContentReleased:
                log.info("archive.append_retried", project_id=project_id)
        raise Unavailable("contents were dropped while changes that need them arrived", "try again")

    async def _append(self, project_id: int, claims: Claims) -> Appended:
        began = monotonic()
        archived_hashes = await self._index.archived(project_id, claims.contents)
        files = Writing(self._storage, await self._index.folder(project_id))
        async with writing(files):
            await self._write(files, project_id, claims, archived_hashes)
            if monotonic() - began > LONGEST_S:
                raise Unavailable("writing to the archive took too long; it will be tried again")
        missing = set(claims.contents) - archived_hashes - files.hashes
        if missing:
            log.warning(
                "archive.content_missing", project_id=project_id, hashes=sorted(missing)[:20]
            )
        try:
            await self._enter(project_id, files, claims, archived_hashes)
        except _ContentReleased:
            await files.discard()
            raise
        return Appended(len(claims.changes), len(files.hashes), len(missing))

    async def _write(
        self, files: Writing, project_id: int, claims: Claims, archived_hashes: Collection[str]
    ) -> None:
        inline = {name: text for name, text in claims.inline.items() if name not in archived_hashes}
        await files.contents(inline)
        referenced = set(claims.contents) - set(archived_hashes) - set(inline)
        sizes = await self._index.reference_sizes(project_id, referenced) if referenced else {}
        for group in _groups(sizes):
            await files.contents(await self._index.references(project_id, group))
        await files.events(claims.changes)

    async def _enter(
        self, project_id: int, files: Writing, claims: Claims, archived_hashes: Collection[str]
    ) -> None:
        async with self._index.adding(project_id) as connection:
            still = archived_hashes and await archived(connection, project_id, archived_hashes)
            if set(still) != set(archived_hashes):
                raise _ContentReleased
            event_ids = [change.event.id for change in claims.changes]
            await enter_files(connection, project_id, files.files, event_ids)


def _groups(sizes: Mapping[str, int]) -> list[list[str]]:
    """Names in groups of about ``_FETCHED_BYTES``, to limit the memory in use."""
    groups: list[list[str]] = [[]]
    group_bytes = 0
    for name, size in sizes.items():
        if groups[-1] and group_bytes + size > _FETCHED_BYTES:
            groups.append([])
            group_bytes = 0
        groups[-1].append(name)
        group_bytes += size
    return groups if groups[-1] else []
