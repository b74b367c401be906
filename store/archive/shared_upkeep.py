"""Upkeep of shared files: removes them, takes out what was purged, and enters orphans.

A shared file is removed when compaction has copied each of its parts into a file of the project,
and the entries of the parts are gone. If a text must go before that, the file is replaced by one
that has only the parts in use. One process at a time removes and replaces shared files.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import asyncpg
import structlog

from store.archive.blocks import BadBlock
from store.archive.files import Files, StoredFile, file_of, is_part, part_path
from store.archive.index import Index, insert_file
from store.archive.orphans import Foreign, read_back
from store.archive.shared_files import Part, SharedFile, parts_of
from store.generations.catalog import Projects
from store.postgres.locks import EVERY_PROJECT, Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["SharedFiles"]

log = structlog.get_logger(__name__)

_QUERIES = named("archive")

_FILES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class _PartInUse:
    """A part that its project still reads."""

    project_id: int
    segment_id: int
    kind: Literal["events", "contents"]
    path: str


@dataclass(frozen=True, slots=True)
class _Move:
    """A part that was copied, and the path of the copy."""

    part: _PartInUse
    path: str


def _by_file(parts: Iterable[_PartInUse]) -> dict[str, list[_PartInUse]]:
    by_file: defaultdict[str, list[_PartInUse]] = defaultdict(list)
    for part in parts:
        by_file[file_of(part.path)].append(part)
    return by_file


class SharedFiles:
    """Removes, replaces and enters the shared files of a deployment.

    Files in the folder of another deployment are never changed: if this database is a copy, its
    original may need them.
    """

    def __init__(
        self, database: Database, projects: Projects, index: Index, storage: Files
    ) -> None:
        self._database = database
        self._projects = projects
        self._index = index
        self._storage = storage

    async def remove_unused(self) -> int:
        """Remove the files of which no project uses a part; return their number."""
        removed = 0
        async with self._alone(wait=False) as is_locked, self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["unused_shared_files"]) if is_locked else []
            for row in rows:
                await self._remove(connection, row["path"])
                removed += 1
        return removed

    async def erase(self, paths: Collection[str], without: int | None = None) -> int:
        """Replace the shared files among ``paths``, and remove them; return their number.

        Parts that are not in use any more are left out, and so are all parts of the project
        ``without``. Readers of a removed file continue with its successor.
        """
        files = sorted({file_of(path) for path in paths if is_part(path)})
        if not files:
            return 0
        async with self._alone(wait=True), self._database.connection() as connection:
            for start in range(0, len(files), _FILES_AT_ONCE):
                group = files[start : start + _FILES_AT_ONCE]
                await self._replace(connection, group, without)
                for file in group:
                    await self._remove(connection, file)
        return len(files)

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

    async def orphans_of(self, project: str, before: datetime) -> list[StoredFile]:
        """Orphans that have a part of a project, or that are not intact."""
        return [
            orphan
            for orphan in await self.find_orphans(before)
            if await asyncio.to_thread(self._concerns, orphan, project)
        ]

    async def adopt_orphans(self, before: datetime) -> int:
        """Enter the intact orphans, and remove the damaged ones; return the number removed.

        If Postgres was restored from a backup, orphans hold what was archived after that backup.
        Parts are entered whose project exists, and existed when the file was written. An orphan
        without such a part is not touched.
        """
        removed = 0
        async with self._alone(wait=False) as is_locked:
            if not is_locked:
                return 0
            projects = await self._projects.all()
            for orphan in await self.find_orphans(before):
                try:
                    parts = await asyncio.to_thread(self._parts, orphan)
                except (BadBlock, FileNotFoundError) as error:
                    log.info("archive.orphan_removed", path=orphan.path, reason=str(error))
                    await asyncio.to_thread(self._storage.remove, orphan.path)
                    removed += 1
                else:
                    await self._adopt(orphan, parts, projects)
        return removed

    @asynccontextmanager
    async def _alone(self, *, wait: bool) -> AsyncIterator[bool]:
        async with (
            self._database.connection() as connection,
            Lock.SHARED_FILES.holding(connection, EVERY_PROJECT, wait=wait) as is_held,
        ):
            yield is_held

    async def _is_own(self, file: str) -> bool:
        return file.startswith(f"{await self._index.shared_folder()}/")

    async def _remove(self, connection: asyncpg.Connection, file: str) -> None:
        """Remove a file, then its entry: a file without an entry would count as an orphan."""
        if await self._is_own(file):
            await asyncio.to_thread(self._storage.remove, file)
        await connection.execute(_QUERIES["forget_shared_file"], file)

    async def _replace(
        self, connection: asyncpg.Connection, files: Collection[str], without: int | None
    ) -> None:
        """Copy the parts in use to a new file each, and let the index name them."""
        own = [file for file in files if await self._is_own(file)]
        rows = await connection.fetch(_QUERIES["projects_of_shared_files"], own)
        in_use = [
            part
            for row in rows
            if row["project_id"] != without
            for part in await self._in_use(row["project_id"], own)
        ]
        names = {project_id: name for name, project_id in (await self._projects.all()).items()}
        folder = await self._index.shared_folder()
        moves: defaultdict[int, list[_Move]] = defaultdict(list)
        for parts in _by_file(in_use).values():
            for move in await asyncio.to_thread(self._copy, parts, names, SharedFile.new(folder)):
                moves[move.part.project_id].append(move)
        successors = {file_of(move.path) for of_project in moves.values() for move in of_project}
        # if this process is killed before a project joins one, ``remove_unused`` removes it
        await connection.execute(_QUERIES["enter_unused_files"], sorted(successors))
        for project_id, of_project in moves.items():
            await self._move(project_id, of_project)

    async def _in_use(self, project_id: int, files: Collection[str]) -> list[_PartInUse]:
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["parts_in_use"], project_id, files)
        return [_PartInUse(project_id, **row) for row in rows]

    def _copy(
        self, parts: Collection[_PartInUse], names: Mapping[int, str], successor: SharedFile
    ) -> list[_Move]:
        """Write the successor of a file, unless the file is missing. Blocks."""
        moves = []
        try:
            for part in parts:
                data = self._storage.read(part.path)
                name = names.get(part.project_id, "")
                moves.append(_Move(part, successor.add(name, part.kind, data)))
        except FileNotFoundError as error:
            log.warning("archive.shared_file_missing", reason=str(error))
            return []
        self._storage.write(successor.path, successor.data)
        return moves

    async def _move(self, project_id: int, moves: Sequence[_Move]) -> None:
        """Let the index name the new paths of a project's parts."""
        segment_ids = [move.part.segment_id for move in moves]
        former, new = [move.part.path for move in moves], [move.path for move in moves]
        joined = {file_of(path) for path in new}
        left = joined | {file_of(path) for path in former}
        async with self._database.scope(project_id) as connection:
            query = _QUERIES["move_parts"]
            await connection.execute(query, project_id, segment_ids, former, new)
            query = _QUERIES["join_shared_files"]
            await connection.execute(query, project_id, sorted(joined))
            # compaction may have replaced a part in between
            query = _QUERIES["leave_shared_files"]
            await connection.execute(query, project_id, sorted(left))

    def _parts(self, orphan: StoredFile) -> list[Part]:
        if not orphan.path.endswith(".zst"):
            raise BadBlock("it was not written completely")
        return parts_of(self._storage.read(orphan.path))

    def _concerns(self, orphan: StoredFile, project: str) -> bool:
        try:
            return any(part.project == project for part in self._parts(orphan))
        except BadBlock:
            return True
        except FileNotFoundError:
            return False

    async def _adopt(
        self, orphan: StoredFile, parts: Collection[Part], projects: Mapping[str, int]
    ) -> None:
        adopted = []
        for part in parts:
            project_id = projects.get(part.project)
            if project_id is None or await self._index.birth(project_id) > orphan.modified_at:
                continue
            if await self._adopt_part(orphan, part, project_id):
                adopted.append(project_id)
        if not adopted:
            log.warning(
                "archive.orphan_skipped", path=orphan.path, reason="it has no known project"
            )
            return
        log.info("archive.orphan_adopted", path=orphan.path)
        async with self._database.connection() as connection:
            await connection.execute(
                _QUERIES["enter_adopted_file"], orphan.path, sorted(set(adopted))
            )

    async def _adopt_part(self, orphan: StoredFile, part: Part, project_id: int) -> bool:
        """Enter a part; return whether the index has it."""
        path = part_path(orphan.path, part.start, part.end)
        stored = replace(orphan, path=path, size_bytes=part.end - part.start)
        if path in await self._index.paths(project_id):
            return True
        try:
            file = await asyncio.to_thread(
                read_back, self._storage, stored, part.project, part.kind
            )
        except (BadBlock, Foreign) as error:
            log.warning("archive.orphan_skipped", path=path, reason=str(error))
            return False
        async with self._index.adding(project_id) as connection:
            await insert_file(connection, project_id, file)
        return True
