"""Replacement of damaged archive files by intact ones, if their contents exist elsewhere."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from events.streams.changes import LoggedChange
from runtime.errors import Unavailable
from store.archive.compaction.compactor import GRACE
from store.archive.compaction.replacement import Replacing
from store.archive.damage import DamagedSegment
from store.archive.files import Files
from store.archive.index import Index, PackFile, Segment
from store.archive.orphans import adopt_orphans
from store.archive.reader import Reader
from store.archive.shared_upkeep import SharedFiles
from store.archive.writer import Writing, writing
from store.generations.catalog import Projects
from store.postgres.pool import Database

__all__ = ["ArchiveRepair"]

Elsewhere = Callable[[Collection[str]], Awaitable[Mapping[str, bytes]]]


class ArchiveRepair:
    """Repairs files of one project. A file that cannot be repaired is left as it is."""

    def __init__(self, database: Database, url: str, project: str, project_id: int) -> None:
        self._index = Index(database)
        self._storage = Files(url)
        self._reader = Reader(self._index, self._storage)
        self._replacing = Replacing(database)
        self._shared = SharedFiles(database, Projects(database), self._index, self._storage)
        self._project = project
        self._project_id = project_id

    async def events(self, paths: Iterable[str], unarchived: Sequence[LoggedChange]) -> list[str]:
        """Replace files of events, by full path; return why files could not be replaced.

        ``unarchived``: changes, without content, that no readable file holds.
        """
        paths_to_replace = set(paths)
        failures = []
        for segment in await self._index.segments(self._project_id):
            if self._storage.full(segment.path) in paths_to_replace:
                failures += await self._replace_events(segment, unarchived)
        return failures

    async def _replace_events(
        self, segment: Segment, unarchived: Sequence[LoggedChange]
    ) -> list[str]:
        span = range(segment.first_position, segment.last_position + 1)
        intact = {change.log_position: change for change in unarchived if change.position in span}
        async for change in self._reader.segment(self._project_id, segment, _ignore):
            intact[change.log_position] = change
        missing = segment.entries - len(intact)
        if missing > 0:
            return [self._failure(segment.path, missing, "changes")]
        files = Writing(self._storage, await self._index.folder(self._project_id))
        async with self._alone(), writing(files):
            await files.events(intact.values())
            old = [segment.segment_id]
            await self._replacing.events(
                self._project_id, old, files.files, dropped=0, complete_from=None
            )
        return []

    async def contents(self, paths: Iterable[str], elsewhere: Elsewhere) -> list[str]:
        """Replace packs of contents, by full path; return why packs could not be replaced.

        ``elsewhere``: function that looks up texts by hash (hex) outside of archive and Postgres.
        """
        paths_to_replace = set(paths)
        failures = []
        for pack in await self._index.packs(self._project_id):
            if self._storage.full(pack.path) in paths_to_replace:
                failures += await self._replace_pack(pack, elsewhere)
        return failures

    async def _replace_pack(self, pack: PackFile, elsewhere: Elsewhere) -> list[str]:
        spans = await self._index.pack_spans(self._project_id, pack.segment_id)
        hashes = {span.sha256.hex() for span in spans}
        texts = await self._reader.contents(self._project_id, hashes, _ignore)
        texts |= await self._index.references(self._project_id, hashes - texts.keys())
        texts |= await elsewhere(hashes - texts.keys())
        missing = hashes - texts.keys()
        if missing:
            return [self._failure(pack.path, len(missing), "contents")]
        files = Writing(self._storage, await self._index.folder(self._project_id))
        async with self._alone(), writing(files):
            await files.contents(texts)
            old = [pack.segment_id]
            await self._replacing.contents(self._project_id, old, files.files, None)
        return []

    async def orphans(self) -> None:
        """Add intact orphaned files to the index, and remove the other orphans."""
        before = datetime.now(UTC) - GRACE
        async with self._alone():
            await adopt_orphans(self._index, self._storage, self._project, self._project_id, before)
        async with self._shared.alone():
            await self._shared.adopt_orphans(before)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        async with self._replacing.alone(self._project_id) as is_locked:
            if not is_locked:
                raise Unavailable("the archive is being compacted", "try again later")
            yield

    def _failure(self, path: str, missing: int, what: str) -> str:
        return (
            f"{self._storage.full(path)}: {missing:,} of its {what} exist nowhere else: "
            "restore the file from a backup of the archive"
        )


def _ignore(_: DamagedSegment) -> None:
    """Discard a report of damage: the damage is already known."""
