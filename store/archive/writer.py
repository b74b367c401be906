"""Writing of archive files, which become valid once they are in the index, and appending."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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
from store.archive.index import ContentReleased, Index, NewEntry, NewFile

__all__ = [
    "CONTENTS",
    "EVENTS",
    "PROJECTS_AT_ONCE",
    "Appended",
    "Appender",
    "Writing",
    "writing",
]

EVENTS: Literal["events"] = "events"
CONTENTS: Literal["contents"] = "contents"

log = structlog.get_logger(__name__)

PROJECTS_AT_ONCE = 4
"""Projects whose files are written at the same time, because a remote storage responds slowly."""

_MAX_TRIES = 3
_FETCHED_BYTES = 32 * 2**20
_LONGEST_S = 1800.0
"""Compaction treats files that are not in the index after twice this time as orphans."""


class Writing:
    """Writes related files of one project. ``files``: the files that were written."""

    def __init__(self, storage: Files, folder: str) -> None:
        """``folder``: the project's folder."""
        self._storage = storage
        self._folder = folder
        self.files: list[NewFile] = []

    async def contents(self, contents: Mapping[str, bytes]) -> None:
        """Write packs of texts by hash (hex)."""
        await asyncio.to_thread(self._write_contents, contents)

    async def events(self, changes: Sequence[LoggedChange]) -> None:
        """Write claimed changes."""
        await asyncio.to_thread(self.write_lines, map(line_of, changes))

    @property
    def hashes(self) -> set[str]:
        """Hashes (hex) of the contents that were written."""
        return {span.sha256.hex() for file in self.files for span in file.spans}

    def write_pack(self, pack: Pack, created_at: datetime | None = None) -> None:
        """Write a pack with the creation time ``created_at``, or the current time; blocks."""
        path = f"{self._folder}/{CONTENTS}/{uuid4().hex}.zst"
        data = pack.data
        self._storage.write(path, data)
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
        path = f"{self._folder}/{EVENTS}/{events.first_position:019d}-{uuid4().hex[:12]}.zst"
        data = events.data
        self._storage.write(path, data)
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

    def _write_contents(self, contents: Mapping[str, bytes]) -> None:
        for pack in encode_contents(contents):
            self.write_pack(pack)

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


@dataclass(frozen=True, slots=True)
class _Append:
    """Changes to append to one project, and the hashes of its contents that are archived."""

    project_id: int
    claims: Claims
    archived: Collection[str]
    files: Writing

    @property
    def entry(self) -> NewEntry:
        """Files and events to enter into the index."""
        event_ids = [change.event.id for change in self.claims.changes]
        return NewEntry(self.files.files, self.archived, event_ids)

    def appended(self) -> Appended:
        """Count; log missing contents."""
        written = self.files.hashes
        missing = set(self.claims.contents).difference(self.archived, written)
        if missing:
            log.warning(
                "archive.content_missing",
                project_id=self.project_id,
                hashes=sorted(missing)[:20],
            )
        return Appended(len(self.claims.changes), len(written), len(missing))


class Appender:
    """Archives changes; each project has files of its own, and several share a transaction."""

    def __init__(self, index: Index, storage: Files) -> None:
        self._index = index
        self._storage = storage

    async def append(self, changes: Mapping[int, Sequence[LoggedChange]]) -> dict[int, Appended]:
        """Archive changes by project, and the contents that they refer to; see ``Archive.append``.

        If it fails, none of them is archived, unless the connection was lost at the end.
        """
        claims = await asyncio.to_thread(_claim_all, changes)
        for _ in range(_MAX_TRIES):
            try:
                return await self._append(claims)
            except ContentReleased:
                log.info("archive.append_retried", project_ids=list(changes)[:20])
        raise Unavailable("contents were dropped while changes that need them arrived", "try again")

    async def _append(self, claims: Mapping[int, Claims]) -> dict[int, Appended]:
        began = monotonic()
        archived = await self._index.archived_of(
            {project_id: claim.contents for project_id, claim in claims.items()}
        )
        appends = [
            _Append(
                project_id,
                claim,
                archived[project_id],
                Writing(self._storage, await self._index.folder(project_id)),
            )
            for project_id, claim in claims.items()
        ]
        async with AsyncExitStack() as discarding:
            for append in appends:
                await discarding.enter_async_context(writing(append.files))
            await self._write_all(appends)
            if monotonic() - began > _LONGEST_S:
                raise Unavailable("writing to the archive took too long; it will be tried again")
        appended = {append.project_id: append.appended() for append in appends}
        try:
            await self._index.enter({append.project_id: append.entry for append in appends})
        except ContentReleased:
            for append in appends:
                await append.files.discard()
            raise
        return appended

    async def _write_all(self, appends: Sequence[_Append]) -> None:
        """Write the files of all projects; raises the first failure after the other writes."""
        limit = asyncio.Semaphore(PROJECTS_AT_ONCE)

        async def write(append: _Append) -> None:
            async with limit:
                await self._write(append)

        results = await asyncio.gather(*map(write, appends), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    async def _write(self, append: _Append) -> None:
        files, claims, archived = append.files, append.claims, append.archived
        inline = {name: text for name, text in claims.inline.items() if name not in archived}
        referenced = set(claims.contents).difference(archived, inline)
        if inline:
            await files.contents(inline)
        if referenced:
            sizes = await self._index.reference_sizes(append.project_id, referenced)
            for group in _groups(sizes):
                await files.contents(await self._index.references(append.project_id, group))
        await files.events(sorted(claims.changes, key=lambda change: change.log_position))


def _claim_all(changes: Mapping[int, Sequence[LoggedChange]]) -> dict[int, Claims]:
    return {project_id: claim(part) for project_id, part in changes.items()}


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
