"""The archive's index in Postgres: its files, and the location of each content."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from events.names import LogPosition
from store.archive.content_files import Span
from store.documents import contents, ledger
from store.generations.catalog import enter_live
from store.postgres.deployment import read_deployment
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = [
    "Index",
    "IndexedFile",
    "NewFile",
    "PackFile",
    "PartsOfProject",
    "Segment",
    "archived",
    "enter_files",
    "insert_file",
    "span_columns",
]

_QUERIES = named("archive")

_SHARED_LOCK_TIMEOUT = "500ms"
"""Wait for a lock in a transaction of several projects. After it, each project waits alone."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A written file that is not in the index yet. ``spans``: the contents that it holds."""

    kind: Literal["events", "contents"]
    path: str
    sha256: bytes
    size_bytes: int
    raw_bytes: int
    entries: int
    first_position: int | None = None
    last_position: int | None = None
    spans: Sequence[Span] = ()
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PartsOfProject:
    """A project's parts of a shared file that is not in the index yet.

    ``needed``: hashes (hex) of the archived contents that the changes refer to. ``event_ids``: ids
    of the changes.
    """

    project_id: int
    files: Sequence[NewFile]
    needed: Collection[str]
    event_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of events in the index."""

    segment_id: int
    path: str
    sha256: bytes
    size_bytes: int
    entries: int
    first_position: int
    last_position: int


@dataclass(frozen=True, slots=True)
class PackFile:
    """A file of contents in the index."""

    segment_id: int
    path: str
    size_bytes: int
    entries: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Review:
    """Extent of a compaction that looked for changes and contents to drop.

    ``limit``: position of the retention. ``newest_file``: highest segment id of the files then.
    """

    limit: int
    newest_file: int


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of either kind in the index."""

    kind: Literal["events", "contents"]
    path: str
    sha256: bytes
    entries: int


class Index:
    """Reads and writes the index, for most purposes of one project at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._deployment_id: str | None = None

    async def folder(self, project_id: int) -> str:
        """Folder of a project's new files; no other deployment uses it."""
        return f"{await self._own_folder()}/{project_id}"

    async def shared_folder(self) -> str:
        """Folder of new files that several projects share; no other deployment uses it."""
        return f"{await self._own_folder()}/shared"

    async def _own_folder(self) -> str:
        if self._deployment_id is None:
            self._deployment_id = (await read_deployment(self._database)).id
        return self._deployment_id

    async def archived(self, project_id: int, hashes: Collection[str]) -> set[str]:
        """Return the hashes of the contents that are archived."""
        async with self._database.reading(project_id) as connection:
            return await archived(connection, project_id, hashes)

    async def archived_of_projects(
        self, hashes: Mapping[int, Collection[str]]
    ) -> dict[int, set[str]]:
        """Return the hashes (hex) of the contents that are archived, by project id, in one call."""
        project_ids = [project_id for project_id, wanted in hashes.items() for _ in wanted]
        binary = [sha256 for wanted in hashes.values() for sha256 in contents.binary(wanted)]
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["archived_of_projects"], project_ids, binary)
        archived_hashes: dict[int, set[str]] = {}
        for row in rows:
            archived_hashes.setdefault(row["project_id"], set()).add(row["sha256"].hex())
        return archived_hashes

    async def enter_shared(
        self,
        path: str,
        parts: Sequence[PartsOfProject],
        project_ids: Collection[int],
        *,
        is_incomplete: bool = False,
    ) -> set[int]:
        """Enter a shared file, and remove its events from the outbox.

        ``project_ids``: every project that the file holds bytes of. ``is_incomplete``: some of its
        parts are of projects that this database does not have.

        Returns the projects whose parts are valid. Of the others, contents that their changes refer
        to were dropped after they had been looked up.

        Raises:
            WriteConflict: a row of a project was locked for too long; nothing is entered.
        """
        described = json.dumps([_described(part) for part in parts])
        async with self._database.transaction(_SHARED_LOCK_TIMEOUT) as connection:
            rows = await connection.fetch(
                _QUERIES["enter_shared_file"],
                path,
                Lock.ARCHIVED_CONTENTS,
                described,
                sorted(project_ids),
                is_incomplete,
            )
        return {row[0] for row in rows}

    async def spans(
        self, project_id: int, hashes: Collection[str]
    ) -> dict[tuple[int, str], list[Span]]:
        """Location of archived contents, by segment id and path of their pack."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["find_spans"], project_id, contents.binary(hashes)
            )
        spans: dict[tuple[int, str], list[Span]] = {}
        for row in rows:
            spans.setdefault((row["segment_id"], row["path"]), []).append(_span(row))
        return spans

    async def segments(self, project_id: int, after: int = -1) -> list[Segment]:
        """Files with events after a position, by their first position."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["event_segments"], project_id, after)
        return [Segment(**row) for row in rows]

    async def is_current(self, project_id: int, segment_id: int, path: str) -> bool:
        """Return whether a file is still in use under a path, so that new readers read it."""
        async with self._database.scope(project_id) as connection:
            query = _QUERIES["is_current"]
            return bool(await connection.fetchval(query, project_id, segment_id, path))

    async def reference_sizes(self, project_id: int, hashes: Collection[str]) -> dict[str, int]:
        """Sizes in bytes of the contents that were published by reference and are stored."""
        async with self._database.scope(project_id) as connection:
            return await contents.sizes(connection, project_id, hashes)

    async def references(self, project_id: int, hashes: Collection[str]) -> dict[str, bytes]:
        """Bytes of the contents among these that were published by reference and are stored."""
        async with self._database.scope(project_id) as connection:
            return await contents.read(connection, project_id, hashes)

    async def packs(self, project_id: int) -> list[PackFile]:
        """Files with contents, oldest first."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["list_packs"], project_id)
        return [PackFile(**row) for row in rows]

    async def pack_spans(self, project_id: int, segment_id: int) -> list[Span]:
        """Locations of a pack's contents that are in the index."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["pack_spans"], project_id, segment_id)
        return [_span(row) for row in rows]

    async def rejected(self, project_id: int) -> set[LogPosition]:
        """Partition and position of the changes that never took effect."""
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            live = await enter_live(connection, project_id)
            return await ledger.ineffective(connection, project_id, live.id)

    async def handled_position(self, project_id: int, event_id: str) -> int | None:
        """Position of an event in the ledger; the first one, if it was published again."""
        async with self._database.scope(project_id) as connection:
            positions = await ledger.first_positions(connection, project_id, [event_id])
        return positions.get(event_id)

    async def files(self, project_id: int) -> list[IndexedFile]:
        """All files in use, oldest first."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["list_files"], project_id)
        return [IndexedFile(**row) for row in rows]

    async def birth(self, project_id: int) -> datetime | None:
        """Earliest time of the project that the rows of this database still show; None: no row."""
        async with self._database.scope(project_id) as connection:
            birth: datetime | None = await connection.fetchval(_QUERIES["birth"], project_id)
        return birth

    async def paths(self, project_id: int) -> set[str]:
        """Paths of all files in the index, retired ones included."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["list_paths"], project_id)
        return {row["path"] for row in rows}

    async def totals(self, project_id: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Counts of what is archived, and of what compaction has dropped."""
        async with self._database.scope(project_id) as connection:
            archive = await connection.fetchrow(_QUERIES["measure_archive"], project_id)
            compactions = await connection.fetchrow(_QUERIES["compactions"], project_id)
        return dict(archive), dict(compactions or {})

    async def last_review(self, project_id: int) -> Review | None:
        """Extent of the last compaction that looked for what to drop; None: there was none."""
        async with self._database.scope(project_id) as connection:
            row = await connection.fetchrow(_QUERIES["last_review"], project_id)
        return None if row is None else Review(**row)

    async def note_review(self, project_id: int, review: Review) -> None:
        """Record the extent of a compaction that looked for what to drop."""
        async with self._database.scope(project_id) as connection:
            await connection.execute(
                _QUERIES["note_review"], project_id, review.limit, review.newest_file
            )

    async def retired(self, project_id: int, before: datetime) -> dict[int, str]:
        """Paths by segment id of the files that were retired before a time."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["list_retired"], project_id, before)
        return {row["segment_id"]: row["path"] for row in rows}

    async def forget(self, project_id: int, segment_ids: Sequence[int]) -> None:
        """Remove the entries of files that were removed."""
        async with self._database.scope(project_id) as connection:
            await connection.execute(_QUERIES["forget_segments"], project_id, segment_ids)

    @asynccontextmanager
    async def adding(self, project_id: int) -> AsyncIterator[asyncpg.Connection]:
        """Begin a transaction during which no contents are dropped."""
        async with self._database.scope(project_id) as connection:
            await Lock.ARCHIVED_CONTENTS.share(connection, project_id)
            yield connection


async def archived(
    connection: asyncpg.Connection, project_id: int, hashes: Collection[str]
) -> set[str]:
    """Return the hashes of the archived contents, as seen by the connection's transaction."""
    rows = await connection.fetch(
        _QUERIES["archived_contents"], project_id, contents.binary(hashes)
    )
    return {row["sha256"].hex() for row in rows}


async def insert_file(connection: asyncpg.Connection, project_id: int, file: NewFile) -> int:
    """Enter a file, and its contents that are new; return the file's id."""
    segment_id: int = await connection.fetchval(
        _QUERIES["insert_segment"],
        project_id,
        *_columns(file),
        file.created_at,
    )
    if file.spans:
        columns = span_columns(file.spans)
        await connection.execute(_QUERIES["insert_contents"], project_id, segment_id, *columns)
    return segment_id


async def enter_files(
    connection: asyncpg.Connection,
    project_id: int,
    files: Sequence[NewFile],
    event_ids: Sequence[str],
) -> None:
    """Enter files that were just written, and remove their events from the outbox."""
    rows = [_columns(file) for file in files]
    spans = [span for file in files for span in file.spans]
    await connection.execute(
        _QUERIES["enter_files"],
        project_id,
        *(list(column) for column in zip(*rows, strict=True)),
        [file.path for file in files for _ in file.spans],
        *(span_columns(spans) if spans else ([], [], [], [])),
        event_ids,
    )


def _described(parts: PartsOfProject) -> dict[str, object]:
    """Argument of ``enter_shared_file`` for one project."""
    return {
        "project_id": parts.project_id,
        "needed": sorted(parts.needed),
        "event_ids": list(parts.event_ids),
        "files": [
            {
                "number": number,
                "kind": file.kind,
                "path": file.path,
                "sha256": file.sha256.hex(),
                "size_bytes": file.size_bytes,
                "raw_bytes": file.raw_bytes,
                "entries": file.entries,
                "first_position": file.first_position,
                "last_position": file.last_position,
            }
            for number, file in enumerate(parts.files)
        ],
        "contents": [
            {
                "path": file.path,
                "sha256": span.sha256.hex(),
                "start_byte": span.start,
                "size_bytes": span.size,
                "raw_bytes": span.raw_size,
            }
            for file in parts.files
            for span in file.spans
        ],
    }


def _columns(file: NewFile) -> tuple[object, ...]:
    return (
        file.kind,
        file.path,
        file.sha256,
        file.size_bytes,
        file.raw_bytes,
        file.entries,
        file.first_position,
        file.last_position,
    )


def span_columns(spans: Sequence[Span]) -> list[list[Any]]:
    """Hashes, starts, sizes and raw sizes."""
    rows = [(span.sha256, span.start, span.size, span.raw_size) for span in spans]
    return [list(column) for column in zip(*rows, strict=True)]


def _span(row: asyncpg.Record) -> Span:
    return Span(row["sha256"], row["start_byte"], row["size_bytes"], row["raw_bytes"])
