"""Writes new files, which become valid once they are in the index."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal
from uuid import uuid4

import structlog

from events.change_log import LoggedChange
from runtime.errors import Unavailable
from store.archive.files import Files
from store.archive.index import NewFile
from store.archive.packs import Pack, encode_contents
from store.archive.segments import EncodedEvents, Line, encode_events, line_of

__all__ = ["CONTENTS", "EVENTS", "Writing", "writing"]

EVENTS: Literal["events"] = "events"
CONTENTS: Literal["contents"] = "contents"

log = structlog.get_logger(__name__)


class Writing:
    """Writes related files of one project. ``files``: the files that were written."""

    def __init__(self, storage: Files, place: str) -> None:
        """``place``: the project's folder."""
        self._storage = storage
        self._folder = place
        self.files: list[NewFile] = []

    async def contents(self, contents: Mapping[str, str]) -> None:
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

    def _write_contents(self, contents: Mapping[str, str]) -> None:
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
