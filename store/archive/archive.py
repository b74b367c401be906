"""The archive of a deployment, by project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from events.names import DocumentKey, LogPosition
from events.streams.changes import LoggedChange
from runtime.errors import Unavailable
from store.archive.check import Check, check
from store.archive.compaction.compactor import GRACE, Compacted, Compactor
from store.archive.compaction.redaction import Purged, Redactor
from store.archive.compaction.replacement import Replacing
from store.archive.compaction.retention import time_of
from store.archive.damage import DamagedSegment, Report, raise_damage
from store.archive.files import Files, is_part
from store.archive.index import Index
from store.archive.marker import claim_folder
from store.archive.reader import Reader
from store.archive.shared_files import SharedAppender
from store.archive.shared_upkeep import SharedFiles
from store.archive.writer import Appended, Appender
from store.generations.catalog import Projects
from store.postgres.pool import Database

if TYPE_CHECKING:  # a gateway needs no numpy
    import numpy as np
    import numpy.typing as npt

__all__ = ["Archive", "ArchiveStatistics", "Beginning"]

log = structlog.get_logger(__name__)

_CONTENTS_AT_ONCE = 10_000

_PROJECTS_AT_ONCE = 4
"""Projects whose own files are written at the same time, because a remote storage is slow."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Position from which on every change is archived; before, at most each document's last is."""

    position: int

    @property
    def at(self) -> datetime:
        """The position as a time."""
        return time_of(self.position)


@dataclass(frozen=True, slots=True)
class ArchiveStatistics:
    """Counts of a project's archive. ``freed_bytes`` and ``dropped_events`` are totals so far.

    ``raw_bytes`` is the uncompressed size of ``stored_bytes``. Positions are None if there are no
    events.
    """

    files: int
    events: int
    contents: int
    stored_bytes: int
    raw_bytes: int
    first_position: int | None
    last_position: int | None
    freed_bytes: int = 0
    dropped_events: int = 0
    complete_from: int | None = None

    @property
    def beginning(self) -> Beginning | None:
        """Position from which on every change is archived. None if nothing is archived."""
        if self.first_position is None:
            return None
        return Beginning(max(self.first_position, self.complete_from or 0))


class Archive:
    """Every change of every document, outside Redis.

    Files are stored under ``url``, a path or any URL that fsspec supports; Postgres has their
    index. Every method raises ``Unavailable`` if storage or Postgres fails, and leaves nothing
    partly written.
    """

    def __init__(self, database: Database, projects: Projects, url: str) -> None:
        """Create the archive's objects without any I/O.

        Raises:
            ConfigurationError: the URL has no known file system, or its package is not installed.
        """
        self._database = database
        self._projects = projects
        self._index = Index(database)
        self._storage = Files(url)
        self._appender = Appender(self._index, self._storage)
        self._reader = Reader(self._index, self._storage)
        replacing = Replacing(database)
        self._shared_appender = SharedAppender(self._index, self._storage)
        self._shared = SharedFiles(database, projects, self._index, self._storage)
        self._compactor = Compactor(self._index, replacing, self._storage)
        self._redactor = Redactor(self._index, replacing, self._storage, self._shared)

    async def claim(self, prefix: str) -> None:
        """Make sure that only this database writes to the folder of its deployment.

        Raises:
            ConfigurationError: a copy of it, or one with another stream prefix, already does.
        """
        await claim_folder(self._database, self._storage, prefix, writes=True)

    async def append(self, project: str, changes: Sequence[LoggedChange]) -> Appended:
        """Archive changes, and each content that they carry or refer to once.

        They are stored durably when this returns. Archiving a change again is harmless. A change
        whose content does not exist is archived nevertheless, and counted as ``missing``.
        """
        if not changes:
            return Appended()
        project_id = await self._projects.ensure(project)
        return await self._appender.append(project_id, changes)

    async def append_together(
        self, changes: Mapping[str, Sequence[LoggedChange]]
    ) -> dict[str, Exception]:
        """Archive changes by project, in a shared file where possible; see ``append``.

        Returns why the changes of a project are not archived, by project; the others are.
        """
        wanted = {project: of_project for project, of_project in changes.items() if of_project}
        entered = await self._append_shared(wanted) if len(wanted) > 1 else set()
        limit = asyncio.Semaphore(_PROJECTS_AT_ONCE)
        failures: dict[str, Exception] = {}

        async def append(project: str) -> None:
            async with limit:
                try:
                    await self.append(project, wanted[project])
                except Exception as error:  # noqa: BLE001 - the caller raises it
                    failures[project] = error

        await asyncio.gather(*map(append, wanted.keys() - entered))
        return failures

    async def _append_shared(self, changes: Mapping[str, Sequence[LoggedChange]]) -> set[str]:
        """Archive changes in shared files; return the projects of which that is done."""
        try:
            ids = await self._projects.ensure_all(changes)
            entered = await self._shared_appender.append(
                {ids[project]: of_project for project, of_project in changes.items()}
            )
        except Exception as error:  # noqa: BLE001 - each project is archived alone
            log.warning("archive.append_divided", projects=len(changes), reason=repr(error))
            return set()
        return {project for project in changes if ids[project] in entered}

    async def events(
        self, project: str, after: int = -1, *, damaged: Report = raise_damage
    ) -> AsyncIterator[LoggedChange]:
        """Changes after a position, roughly in order of position, contents by reference.

        Changes archived during the iteration are left out. In rare cases a change is yielded twice.
        ``damaged`` is called for each damaged file, after its intact changes.

        Raises:
            DamagedSegment: a file is damaged, and ``damaged`` raised this error.
        """
        project_id = await self._projects.find(project)
        if project_id is not None:
            async for change in self._reader.events(project_id, after, damaged):
                # an earlier version could add files of another deployment
                if change.event.data.project == project:
                    yield change

    async def events_at(
        self,
        project: str,
        positions: npt.NDArray[np.int64],
        *,
        damaged: Report = raise_damage,
    ) -> AsyncIterator[LoggedChange]:
        """Changes at positions, which are in ascending order; those that do not exist are absent.

        Of files without such a change nothing is read. ``damaged``: see ``events``.

        Raises:
            DamagedSegment: a file is damaged, and ``damaged`` raised this error.
        """
        project_id = await self._projects.find(project)
        if project_id is not None:
            async for change in self._reader.events_at(project_id, positions, damaged):
                if change.event.data.project == project:
                    yield change

    async def content(self, project: str, sha256: str) -> bytes | None:
        """Bytes of a content by its hash (hex), or None if it does not exist; see ``contents``."""
        return (await self.contents(project, [sha256])).get(sha256)

    async def contents(
        self, project: str, sha256s: Collection[str], *, damaged: Report = raise_damage
    ) -> dict[str, bytes]:
        """Bytes of contents by their hashes (hex), verified; contents that do not exist are absent.

        Contents that were published by reference but are not archived yet are looked up too.

        Raises:
            DamagedSegment: a file is damaged, and ``damaged`` raised this error.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return {}
        hashes = list(dict.fromkeys(sha256s))
        by_hash: dict[str, bytes] = {}
        for start in range(0, len(hashes), _CONTENTS_AT_ONCE):
            part = hashes[start : start + _CONTENTS_AT_ONCE]
            by_hash |= await self._reader.contents(project_id, part, damaged)
        absent = [sha256 for sha256 in hashes if sha256 not in by_hash]
        return by_hash | (await self._index.references(project_id, absent) if absent else {})

    async def statistics(self, project: str) -> ArchiveStatistics | None:
        """Statistics of a project's archive. Returns None if the project does not exist."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return None
        totals, compactions = await self._index.totals(project_id)
        return ArchiveStatistics(**totals, **compactions)

    async def beginning(self, project: str) -> Beginning | None:
        """Position from which on every change is archived. Returns None if none is archived."""
        statistics = await self.statistics(project)
        return None if statistics is None else statistics.beginning

    async def position_of(self, project: str, event_id: str) -> int | None:
        """First log position of an event, from the ledger or else the archive.

        Returns None if neither has the event.

        Raises:
            DamagedSegment: a part of the archive is unreadable, and the rest lacks the event.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return None
        handled = await self._index.handled_position(project_id, event_id)
        if handled is not None:
            return handled
        damaged: list[DamagedSegment] = []
        async for change in self._reader.events(project_id, -1, damaged.append):
            if change.event.id == event_id and change.event.data.project == project:
                return change.position
        if damaged:
            raise damaged[0]
        return None

    async def compact(
        self,
        project: str,
        older_than: datetime,
        rejected: Collection[LogPosition] | None = None,
        *,
        grace: timedelta = GRACE,
    ) -> Compacted:
        """Drop changes and contents past retention, and merge small files.

        Changes from ``older_than`` on are kept, and of the older ones each document's last (a
        rename is a change of both its documents). Contents that no change refers to are dropped,
        unless they were archived since ``older_than``. Changes in ``rejected`` (partition,
        position) never took effect, so they do not count as a document's last; None: take the
        rejected changes from the ledger.

        Appends and readers are not blocked. Unused files are removed after ``grace``. Nothing is
        done while another compaction of the project runs.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return Compacted()
        return await self._compactor.compact(project, project_id, older_than, rejected, grace)

    async def survey(self, project_id: int, before: Mapping[DocumentKey, LogPosition]) -> Purged:
        """Report what the archive holds of documents, each before a log position; reads all files.

        ``before``: log position (position, partition) by document (agent, uri).
        """
        return await self._redactor.survey(project_id, before)

    async def purge(
        self,
        project: str,
        project_id: int,
        before: Mapping[DocumentKey, LogPosition],
        *,
        grace: timedelta = GRACE,
    ) -> Purged | None:
        """Remove the text from all changes of documents, each before a log position.

        Returns None, and does nothing, while a compaction of the project runs. ``before``: as in
        ``survey``; ``grace``: as in ``check``.
        """
        return await self._redactor.purge(project, project_id, before, grace)

    async def drop(self, project_id: int) -> int:
        """Remove all files of a deleted project, in the index or not; return their number.

        Shared files are replaced by ones without its parts.

        Raises:
            Unavailable: a shared file may hold its text that is not in the index; try again later.
            DamagedSegment: a shared file cannot be replaced, because it is damaged.
        """
        folder = await self._index.folder(project_id)
        listed = await asyncio.to_thread(self._storage.listed, folder)
        indexed = await self._index.paths(project_id)
        paths = {file.path for file in listed} | {path for path in indexed if not is_part(path)}
        for path in paths:
            await asyncio.to_thread(self._storage.remove, path)
        async with self._shared.alone():
            await self._shared.adopt_orphans(datetime.now(UTC) - GRACE)
            young = await self._shared.young_of(project_id)
            replaced, damaged = await self._shared.erase(project_id, is_deleted=True)
        for error in damaged:
            raise error
        if young:
            raise Unavailable(
                f"{self._storage.full(young[0].path)} may hold changes of the project, and is not "
                "in the index",
                "try again in an hour, when an archiver has entered it",
            )
        return len(paths) + replaced

    async def tidy_shared(self, *, grace: timedelta = GRACE) -> None:
        """Remove shared files that no project needs, and enter orphans of them: see ``check``."""
        before = datetime.now(UTC) - grace
        async with self._shared.alone_now() as is_alone:
            if is_alone:
                await self._shared.remove_unused(before)
                await self._shared.adopt_orphans(before)

    async def check(self, project: str, *, grace: timedelta = GRACE) -> Check:
        """Read everything, and report damaged, missing and orphaned files.

        A file that is not in the index is an orphan once it is older than ``grace``: until then it
        may belong to an append in progress.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return Check()
        return await check(self._index, self._storage, self._shared, project_id, grace)
