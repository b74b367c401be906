"""The archive of a deployment, by project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from events.change_log import LoggedChange
from store.archive.appending import Appended, Appender
from store.archive.checking import Check, check
from store.archive.compacting import GRACE, Compacted, Compactor
from store.archive.damage import DamagedSegment, Report, raise_damage
from store.archive.files import Files
from store.archive.index import Index
from store.archive.marker import claim_folder
from store.archive.reading import Reader
from store.archive.redacting import Purged, Redactor
from store.archive.replacing import Replacing
from store.archive.retention import Document
from store.archive.statistics import ArchiveStatistics, Beginning, measure
from store.database import Database
from store.projects import Projects

__all__ = ["Archive"]

_CONTENTS_AT_ONCE = 10_000


class Archive:
    """Every change of every document, outside Redis.

    Files lie under ``url``, any that fsspec knows, a path included; Postgres has their index. Every
    method raises ``Unavailable`` when storage or Postgres fails; nothing is half written then.
    """

    def __init__(self, database: Database, projects: Projects, url: str) -> None:
        """Touches nothing yet.

        Raises:
            ConfigurationError: no file system is known for the URL, or its package is absent.
        """
        self._database = database
        self._projects = projects
        self._index = Index(database)
        self._storage = Files(url)
        self._appender = Appender(self._index, self._storage)
        self._reader = Reader(self._index, self._storage)
        replacing = Replacing(database)
        self._compactor = Compactor(self._index, replacing, self._storage)
        self._redactor = Redactor(self._index, replacing, self._storage)

    async def claim(self, prefix: str) -> None:
        """Make sure that this database alone writes to the folder of its deployment.

        Raises:
            ConfigurationError: a copy of it, or one of another stream prefix, does already.
        """
        await claim_folder(self._database, self._storage, prefix, writes=True)

    async def append(self, project: str, changes: Sequence[LoggedChange]) -> Appended:
        """Archive changes, and each content that they carry or refer to once.

        They are safe when this returns. Archiving a change again is harmless. A change whose
        content is nowhere is archived all the same, and counted as ``lost``.
        """
        if not changes:
            return Appended()
        project_id = await self._projects.ensure(project)
        return await self._appender.append(project_id, changes)

    async def events(
        self, project: str, after: int = -1, *, damaged: Report = raise_damage
    ) -> AsyncIterator[LoggedChange]:
        """Changes after a position, roughly by position, contents by reference.

        What is archived while this reads is left out. A change may come twice, though hardly ever.
        ``damaged`` is told of each damaged file, after the changes of it that are whole.

        Raises:
            DamagedSegment: a file is damaged, unless ``damaged`` lets the reader go on.
        """
        project_id = await self._projects.find(project)
        if project_id is not None:
            async for change in self._reader.events(project_id, after, damaged):
                # an earlier version could take in files of another deployment
                if change.event.data.project == project:
                    yield change

    async def content(self, project: str, sha256: str) -> str | None:
        """The content of a hash in hex, or None; see ``contents``."""
        return (await self.contents(project, [sha256])).get(sha256)

    async def contents(
        self, project: str, sha256s: Collection[str], *, damaged: Report = raise_damage
    ) -> dict[str, str]:
        """Contents by their hashes in hex, verified; those that are nowhere are absent.

        What the archive lacks may have travelled by reference just now, so that is looked up too.

        Raises:
            DamagedSegment: a file is damaged, unless ``damaged`` lets the reader go on.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return {}
        wanted = list(dict.fromkeys(sha256s))
        found: dict[str, str] = {}
        for start in range(0, len(wanted), _CONTENTS_AT_ONCE):
            part = wanted[start : start + _CONTENTS_AT_ONCE]
            found |= await self._reader.contents(project_id, part, damaged)
        absent = [sha256 for sha256 in wanted if sha256 not in found]
        return found | (await self._index.references(project_id, absent) if absent else {})

    async def statistics(self, project: str) -> ArchiveStatistics | None:
        """What the archive holds of a project; None: there is no such project."""
        project_id = await self._projects.find(project)
        return None if project_id is None else await measure(self._index, project_id)

    async def beginning(self, project: str) -> Beginning | None:
        """From where on every change is archived; None: none is."""
        found = await self.statistics(project)
        return None if found is None else found.beginning

    async def position_of(self, project: str, event_id: str) -> int | None:
        """Where an event first stood in the log, by the ledger or else the archive; or None.

        Raises:
            DamagedSegment: it isn't in what can be read of the archive, and not all can.
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
        rejected: Collection[tuple[int, int]] | None = None,
        *,
        grace: timedelta = GRACE,
    ) -> Compacted:
        """Let go of what needn't be kept, and make large files of small ones.

        Changes from ``older_than`` on stay, and of those before it, each document's last (a rename
        is a change of both its documents). Contents go that no change refers to any more, unless
        they were archived since ``older_than``. ``rejected`` (partition, position) never took
        effect, so that none of them is a last; None: as the ledger says.

        Appends and readers go on meanwhile. Files without use are removed after ``grace``. Where
        another compaction of the project is at work, nothing is done.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return Compacted()
        return await self._compactor.compact(project, project_id, older_than, rejected, grace)

    async def survey(self, project_id: int, before: Mapping[Document, tuple[int, int]]) -> Purged:
        """What the archive holds of documents (agent, uri) before an order each; reads all."""
        return await self._redactor.survey(project_id, before)

    async def purge(
        self,
        project: str,
        project_id: int,
        before: Mapping[Document, tuple[int, int]],
        *,
        grace: timedelta = GRACE,
    ) -> Purged | None:
        """Take the text out of all changes of documents before an order each.

        None: a compaction of the project is at work; nothing is done then. ``grace``: as ``check``.
        """
        return await self._redactor.purge(project, project_id, before, grace)

    async def drop(self, project_id: int) -> int:
        """Remove all files of a project that is deleted, known to the index or not; how many."""
        folder = await self._index.folder(project_id)
        listed = await asyncio.to_thread(self._storage.listed, folder)
        paths = {file.path for file in listed} | await self._index.paths(project_id)
        for path in paths:
            await asyncio.to_thread(self._storage.remove, path)
        return len(paths)

    async def check(self, project: str, *, grace: timedelta = GRACE) -> Check:
        """Read everything, and say what is damaged, missing or too much.

        A file that the index doesn't know is an orphan once it is older than ``grace``: before, it
        may be a part of an append that is going on.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return Check()
        return await check(self._index, self._storage, project_id, grace)
