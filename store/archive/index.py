"""The archive's index in Postgres: which files there are, and where each content lies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from store.archive.packs import Span
from store.database import Database
from store.named_queries import named

__all__ = ["Index", "NewFile", "Segment"]

LOCK_SPACE = 0x48444152
"""Of the advisory locks that keep letting go and adding apart, one for each project."""

_QUERIES = named("archive")


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is written, but not yet in the index. ``spans``: the contents that it holds."""

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
class Segment:
    """A file of events in the index."""

    segment_id: int
    path: str
    sha256: bytes
    size_bytes: int
    entries: int
    first_position: int
    last_position: int
    created_at: datetime


class Index:
    """Reads and writes the index of one project at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, project_id: int, hashes: Collection[str]) -> set[str]:
        """Those of the contents that are archived."""
        async with self._database.scope(project_id) as connection:
            return await known(connection, project_id, hashes)

    async def spans(
        self, project_id: int, hashes: Collection[str]
    ) -> dict[tuple[int, str], list[Span]]:
        """Where contents lie, by segment id and path of their pack; as far as archived."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["find_spans"], project_id, binary(hashes))
        found: dict[tuple[int, str], list[Span]] = {}
        for row in rows:
            pack = found.setdefault((row["segment_id"], row["path"]), [])
            pack.append(Span(row["sha256"], row["start_byte"], row["size_bytes"], row["raw_bytes"]))
        return found

    async def segments(self, project_id: int, after: int = -1) -> list[Segment]:
        """Files with events after a position, by their first position."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["event_segments"], project_id, after)
        return [Segment(**row) for row in rows]

    async def is_current(self, project_id: int, segment_id: int) -> bool:
        """Whether readers of now are still sent to a file."""
        async with self._database.scope(project_id) as connection:
            return bool(await connection.fetchval(_QUERIES["is_current"], project_id, segment_id))

    async def reference_sizes(self, project_id: int, hashes: Collection[str]) -> dict[str, int]:
        """Size in bytes of those contents that travelled by reference and are kept."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["size_references"], project_id, binary(hashes))
        return {row["sha256"].hex(): row["size_bytes"] for row in rows}

    async def references(self, project_id: int, hashes: Collection[str]) -> dict[str, str]:
        """The contents among these that travelled by reference and are kept."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["get_references"], project_id, binary(hashes))
        return {row["sha256"].hex(): row["content"] for row in rows}

    @asynccontextmanager
    async def adding(self, project_id: int) -> AsyncIterator[asyncpg.Connection]:
        """A transaction during which nothing is let go."""
        async with self._database.scope(project_id) as connection:
            await connection.execute(_QUERIES["lock_shared"], LOCK_SPACE, project_id)
            yield connection


async def known(
    connection: asyncpg.Connection, project_id: int, hashes: Collection[str]
) -> set[str]:
    """Those of the contents that are archived, as the connection's transaction sees it."""
    rows = await connection.fetch(_QUERIES["known_contents"], project_id, binary(hashes))
    return {row["sha256"].hex() for row in rows}


async def insert(connection: asyncpg.Connection, project_id: int, file: NewFile) -> int:
    """Enter a file and the contents that it holds; the file's id."""
    segment_id: int = await connection.fetchval(
        _QUERIES["insert_segment"],
        project_id,
        file.kind,
        file.path,
        file.sha256,
        file.size_bytes,
        file.raw_bytes,
        file.entries,
        file.first_position,
        file.last_position,
        file.created_at,
    )
    if file.spans:
        columns = span_columns(file.spans)
        await connection.execute(_QUERIES["insert_contents"], project_id, segment_id, *columns)
    return segment_id


async def clear_outbox(
    connection: asyncpg.Connection, project_id: int, event_ids: Sequence[str]
) -> None:
    """Forget events that needed to be kept until they are archived."""
    await connection.execute(_QUERIES["clear_outbox"], project_id, event_ids)


def span_columns(spans: Sequence[Span]) -> list[list[Any]]:
    """Hashes, starts, sizes and raw sizes."""
    rows = [(span.sha256, span.start, span.size, span.raw_size) for span in spans]
    return [list(column) for column in zip(*rows, strict=True)]


def binary(hashes: Collection[str]) -> list[bytes]:
    """Hashes in hex as Postgres has them."""
    return [bytes.fromhex(sha256) for sha256 in hashes]
