"""Upkeep of shared files: removes them, takes out what was purged, and enters orphans.

A shared file is removed when the index has none of its parts any more, because compaction has
copied each into a file of its project. If the text of a project must go before that, the file is
replaced by one that has only the parts in use.

The entry of a file names all projects that it holds bytes of, whether or not the index has their
parts. So a purge finds every file that may hold a text.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import structlog

from runtime.errors import Unavailable
from store.archive.blocks import BadBlock
from store.archive.damage import DamagedSegment
from store.archive.files import Files, StoredFile, file_of, part_path
from store.archive.index import Index, NewFile, PartsOfProject
from store.archive.orphans import Foreign, read_back
from store.archive.shared_files import Part, SharedFile, parts_of
from store.generations.catalog import Projects
from store.postgres.locks import EVERY_PROJECT, Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["SharedFiles"]

log = structlog.get_logger(__name__)

_QUERIES = named("archive")
_PROJECTS = named("projects")

_FILES_AT_ONCE = 100
_LONGEST_WAIT_S = 60.0
_POLL_S = 0.25
_CLOCKS_DIFFER_BY = timedelta(days=1)
"""Most by which the clock of a storage may be ahead."""

_ENTRY_S = 3.0
"""Time in which an archiver that is alive enters a file after it has written it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Entry of a shared file, with all projects that it holds bytes of.

    ``is_incomplete``: some of its parts are of projects that this database does not have.
    """

    path: str
    project_ids: Sequence[int]
    is_incomplete: bool


@dataclass(frozen=True, slots=True)
class _PartInUse:
    """A part that its project still reads."""

    project_id: int
    segment_id: int
    kind: Literal["events", "contents"]
    path: str
    sha256: bytes


@dataclass(slots=True)
class _Copy:
    """Successor of a file, its projects, and the new path of each part that it has."""

    entry: _Entry
    file: SharedFile
    project_ids: set[int] = field(default_factory=set)
    moves: list[tuple[_PartInUse, str]] = field(default_factory=list)
    is_incomplete: bool = False
    is_damaged: bool = False


class SharedFiles:
    """Removes, replaces and enters the shared files of a deployment.

    All methods but ``alone`` and those that find orphans need the lock that ``alone`` takes. Files
    in the folder of another deployment are never changed: if this database is a copy, its original
    may need them.
    """

    def __init__(
        self, database: Database, projects: Projects, index: Index, storage: Files
    ) -> None:
        self._database = database
        self._projects = projects
        self._index = index
        self._storage = storage

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Exclude other processes that remove, replace or enter orphaned shared files.

        Raises:
            Unavailable: another process has excluded this one for a minute.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LONGEST_WAIT_S
        while True:
            async with self.alone_now() as is_alone:
                if is_alone:
                    yield
                    return
            if loop.time() > deadline:
                raise Unavailable(
                    "another process changes archive files that projects share", "try again later"
                )
            await asyncio.sleep(_POLL_S)

    @asynccontextmanager
    async def alone_now(self) -> AsyncIterator[bool]:
        """Do the same without waiting; yields false if another process is excluded."""
        async with (
            self._database.connection() as connection,
            Lock.SHARED_FILES.holding(connection, EVERY_PROJECT) as is_held,
        ):
            yield is_held

    async def remove_unused(self, before: datetime) -> int:
        """Remove files, entered before a time, that have no part in the index; return their number.

        A file with parts of projects that this database does not have is kept.
        """
        entries = [
            entry
            for entry in await self._entries("old_shared_files", before)
            if not entry.is_incomplete
        ]
        in_index: set[str] = set()
        for project_id in sorted({id_ for entry in entries for id_ in entry.project_ids}):
            async with self._database.scope(project_id) as connection:
                rows = await connection.fetch(_QUERIES["shared_files_in_index"], project_id)
            in_index |= {row["path"] for row in rows}
        unused = [entry.path for entry in entries if entry.path not in in_index]
        for path in unused:
            await self._remove(path)
        return len(unused)

    async def erase(
        self, project_id: int, *, is_deleted: bool = False
    ) -> tuple[int, list[DamagedSegment]]:
        """Replace every file that holds bytes of a project; return their number, and what failed.

        The new files have the parts in use, with ``is_deleted`` without those of the project.
        Readers of a removed file continue with its successor. A damaged file is left as it is.
        """
        entries = [
            entry
            for entry in await self._entries("shared_files_of_project", project_id)
            if await self._is_own(entry.path)
        ]
        damaged: list[DamagedSegment] = []
        for start in range(0, len(entries), _FILES_AT_ONCE):
            group = entries[start : start + _FILES_AT_ONCE]
            damaged += await self._replace(group, project_id if is_deleted else None)
        return len(entries) - len(damaged), damaged

    async def find_orphans(self, before: datetime) -> list[StoredFile]:
        """Shared files that are not in the index and unchanged since ``before``.

        The files are listed before the index is read, so that a file that is being entered is not
        mistaken for an orphan.
        """
        folder = await self._index.shared_folder()
        listed = await asyncio.to_thread(self._storage.listed, folder)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["list_shared_files"])
        entered = {row["path"] for row in rows}
        return [file for file in listed if file.modified_at <= before and file.path not in entered]

    async def orphans_of(self, project_id: int, before: datetime) -> list[StoredFile]:
        """Orphans, not older than a project, that have a part of it or are not intact."""
        birth = await self._index.birth(project_id)
        orphans = await self._orphans_with(project_id, before)
        return [orphan for orphan in orphans if birth is None or birth <= orphan.modified_at]

    async def _orphans_with(self, project_id: int, before: datetime) -> list[StoredFile]:
        return [
            orphan
            for orphan in await self.find_orphans(before)
            if await asyncio.to_thread(self._concerns, orphan, project_id)
        ]

    async def young_of(self, project_id: int) -> list[StoredFile]:
        """Orphans of any age that may have a part of a project.

        Those that an archiver is about to enter are waited for.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ENTRY_S
        while orphans := await self._orphans_with(
            project_id, datetime.now(UTC) + _CLOCKS_DIFFER_BY
        ):
            if loop.time() > deadline:
                break
            await asyncio.sleep(_POLL_S)
        return orphans

    async def adopt_orphans(self, before: datetime) -> int:
        """Enter the intact orphans, and remove the damaged ones; return the number removed.

        If Postgres was restored from a backup, orphans hold what was archived after that backup.
        Parts are entered whose project exists, and existed when the file was written. With a part
        of a deleted project, an orphan is entered without parts, so that ``erase`` finds it. Others
        are not touched.
        """
        removed = 0
        projects = await self._projects.all()
        deleted = await self._deleted()
        for orphan in await self.find_orphans(before):
            try:
                parts = await asyncio.to_thread(self._parts, orphan)
            except (BadBlock, FileNotFoundError) as error:
                log.info("archive.orphan_removed", path=orphan.path, reason=str(error))
                await asyncio.to_thread(self._storage.remove, orphan.path)
                removed += 1
            else:
                await self._adopt(orphan, parts, projects, deleted)
        return removed

    async def _entries(self, query: str, argument: object) -> list[_Entry]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES[query], argument)
        return [_Entry(**row) for row in rows]

    async def _deleted(self) -> set[int]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PROJECTS["list_deleted_projects"])
        return {row["id"] for row in rows}

    async def _is_own(self, file: str) -> bool:
        return file.startswith(f"{await self._index.shared_folder()}/")

    async def _remove(self, file: str) -> None:
        """Remove a file, then its entry: a file without an entry would count as an orphan."""
        if await self._is_own(file):
            await asyncio.to_thread(self._storage.remove, file)
        async with self._database.connection() as connection:
            await connection.execute(_QUERIES["forget_shared_file"], file)

    async def _replace(
        self, entries: Sequence[_Entry], without: int | None
    ) -> list[DamagedSegment]:
        """Copy the parts in use to new files, let the index name them, and remove the old files."""
        in_use = await self._in_use(entries, without)
        files_in_use = {file_of(path) for path in in_use}
        existing_ids = set((await self._projects.all()).values()) | await self._deleted()
        folder = await self._index.shared_folder()
        copies = [_Copy(entry, SharedFile.new(folder)) for entry in entries]
        # entered before they are written: after a kill they are unused files, and not orphans
        await self._enter(copies)
        damaged: list[DamagedSegment] = []
        for copy in copies:
            if not copy.entry.is_incomplete and copy.entry.path not in files_in_use:
                continue
            try:
                await asyncio.to_thread(self._copy, copy, in_use, existing_ids)
            except DamagedSegment as error:
                copy.is_damaged = True
                damaged.append(error)
        await self._move([copy for copy in copies if copy.project_ids and not copy.is_damaged])
        for copy in copies:
            if not copy.is_damaged:
                await self._remove(copy.entry.path)
            if copy.is_damaged or not copy.project_ids:
                await self._remove(copy.file.path)
        return damaged

    async def _in_use(
        self, entries: Sequence[_Entry], without: int | None
    ) -> dict[str, _PartInUse]:
        """Parts in use by their paths."""
        files = [entry.path for entry in entries]
        in_use: dict[str, _PartInUse] = {}
        for project_id in sorted({id_ for entry in entries for id_ in entry.project_ids}):
            if project_id != without:
                async with self._database.scope(project_id) as connection:
                    rows = await connection.fetch(_QUERIES["parts_in_use"], project_id, files)
                in_use |= {row["path"]: _PartInUse(project_id, **row) for row in rows}
        return in_use

    async def _enter(self, copies: Sequence[_Copy]) -> None:
        """Enter successors, with all projects of their former files."""
        rows = [
            (copy.file.path, copy.entry.project_ids, copy.entry.is_incomplete) for copy in copies
        ]
        async with self._database.connection() as connection:
            await connection.executemany(_QUERIES["enter_successor"], rows)

    def _copy(
        self, copy: _Copy, in_use: Mapping[str, _PartInUse], existing_ids: Collection[int]
    ) -> None:
        """Write the successor of a file, unless it has no parts or the file is missing; blocks.

        Raises:
            DamagedSegment: a part that must be kept, or the list of parts, is damaged.
        """
        entry = copy.entry
        try:
            data = self._storage.read(entry.path)
            parts = parts_of(data)
        except FileNotFoundError:
            log.warning("archive.shared_file_missing", path=entry.path)
            return
        except BadBlock as error:
            raise DamagedSegment(self._storage.full(entry.path), str(error)) from None
        for part in parts:
            path = part_path(entry.path, part.start, part.end)
            used = in_use.get(path)
            content = data[part.start : part.end]
            if used is not None:
                if hashlib.sha256(content).digest() != used.sha256:
                    raise DamagedSegment(
                        self._storage.full(path), "it differs from the part that was written"
                    )
                copy.moves.append((used, copy.file.add(part, content)))
            elif entry.is_incomplete and part.project_id not in existing_ids:
                copy.file.add(part, content)
                copy.is_incomplete = True
            else:
                continue
            copy.project_ids.add(part.project_id)
        if copy.project_ids:
            self._storage.write(copy.file.path, copy.file.data)

    async def _move(self, copies: Sequence[_Copy]) -> None:
        """Let the index name the successors in place of the former files."""
        async with self._database.connection() as connection:
            for copy in copies:
                row = copy.file.path, sorted(copy.project_ids), copy.is_incomplete
                if await connection.execute(_QUERIES["narrow_successor"], *row) != "UPDATE 1":
                    # the session with the lock was lost, and another process has removed the file
                    raise Unavailable(f"{copy.file.path} is gone", "try again")
        moves: defaultdict[int, list[tuple[int, str, str]]] = defaultdict(list)
        for copy in copies:
            for part, path in copy.moves:
                moves[part.project_id].append((part.segment_id, part.path, path))
        for project_id, of_project in moves.items():
            columns = [list(column) for column in zip(*of_project, strict=True)]
            async with self._database.scope(project_id) as connection:
                await connection.execute(_QUERIES["move_parts"], project_id, *columns)

    def _parts(self, orphan: StoredFile) -> list[Part]:
        if not orphan.path.endswith(".zst"):
            raise BadBlock("it was not written completely")
        return parts_of(self._storage.read(orphan.path))

    def _concerns(self, orphan: StoredFile, project_id: int) -> bool:
        try:
            return any(part.project_id == project_id for part in self._parts(orphan))
        except BadBlock:
            return True
        except FileNotFoundError:
            return False

    async def _adopt(
        self,
        orphan: StoredFile,
        parts: Collection[Part],
        projects: Mapping[str, int],
        deleted: Collection[int],
    ) -> None:
        existing_ids = {*projects.values(), *deleted}
        files: defaultdict[int, list[NewFile]] = defaultdict(list)
        is_incomplete = False
        for part in parts:
            is_incomplete |= part.project_id not in existing_ids
            if projects.get(part.project) != part.project_id:
                continue
            birth = await self._index.birth(part.project_id)
            if birth is not None and birth <= orphan.modified_at:
                file = await asyncio.to_thread(self._read_back, orphan, part)
                files[part.project_id] += [] if file is None else [file]
        adopted = [
            PartsOfProject(project_id, of_project, (), ())
            for project_id, of_project in sorted(files.items())
            if of_project
        ]
        held = {part.project_id for part in parts}
        if not adopted and held.isdisjoint(deleted):
            log.warning("archive.orphan_skipped", path=orphan.path, reason="no project needs it")
            return
        await self._index.enter_shared(orphan.path, adopted, held, is_incomplete=is_incomplete)
        log.info("archive.orphan_adopted", path=orphan.path)

    def _read_back(self, orphan: StoredFile, part: Part) -> NewFile | None:
        """Index entry of a part; None if it is damaged. Blocks."""
        path = part_path(orphan.path, part.start, part.end)
        stored = replace(orphan, path=path, size_bytes=part.end - part.start)
        try:
            return read_back(self._storage, stored, part.project, part.kind)
        except (BadBlock, Foreign) as error:
            log.warning("archive.orphan_skipped", path=path, reason=str(error))
            return None
