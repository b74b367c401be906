"""Chunks of a document: its stored rows, and their difference from the rows it should have."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from store.postgres.named_queries import named
from store.types import ChunkWrite

__all__ = [
    "Difference",
    "NewChunk",
    "StoredChunk",
    "compare",
    "delete",
    "insert",
    "move",
    "stored",
    "take_ids",
]

_QUERIES = named("chunks")

_LARGE_ROWS = 1_000
_LARGE_TIMEOUT_S = 60.0
"""Timeout of the statement that inserts more than ``_LARGE_ROWS`` chunks."""

Identity = tuple[bytes, int | None, str | None, tuple[str, ...]]
"""Everything that a chunk is found by: hash, model, symbol, headings. Equal chunks share it."""

Location = tuple[int, int, int, int | None, int]
"""Ordinal, start line, end line, page, tokens. A change of these does not require reindexing."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's row, without its text."""

    chunk_id: int
    identity: Identity
    location: Location


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk that needs a row. ``model_id`` is None if it gets no vector."""

    write: ChunkWrite
    model_id: int | None

    @property
    def identity(self) -> Identity:
        """Identity, comparable with that of a stored chunk."""
        write = self.write
        return write.content_hash, self.model_id, write.symbol, write.heading_path

    @property
    def location(self) -> Location:
        """Location in the document, comparable with that of a stored chunk."""
        write = self.write
        return write.ordinal, write.start_line, write.end_line, write.page, write.tokens


@dataclass(frozen=True, slots=True)
class Difference:
    """Changes to the rows of a document. ``kept``: ids of rows that stay, with their chunks."""

    added: Sequence[NewChunk]
    moved: Sequence[tuple[int, Location]]
    removed: Sequence[int]
    kept: Sequence[tuple[int, NewChunk]]


def compare(before: Iterable[StoredChunk], after: Iterable[NewChunk]) -> Difference:
    """Pair equal chunks in order; unpaired ones are added or removed."""
    unpaired: defaultdict[Identity, deque[StoredChunk]] = defaultdict(deque)
    for old in before:
        unpaired[old.identity].append(old)
    added: list[NewChunk] = []
    moved: list[tuple[int, Location]] = []
    kept: list[tuple[int, NewChunk]] = []
    for new in after:
        if not unpaired[new.identity]:
            added.append(new)
            continue
        old = unpaired[new.identity].popleft()
        kept.append((old.chunk_id, new))
        if old.location != new.location:
            moved.append((old.chunk_id, new.location))
    removed = [old.chunk_id for rest in unpaired.values() for old in rest]
    return Difference(added, moved, removed, kept)


async def stored(
    connection: asyncpg.Connection, generation_id: int, document_ids: Sequence[int]
) -> Mapping[int, list[StoredChunk]]:
    """Rows of each document, in order."""
    by_document: defaultdict[int, list[StoredChunk]] = defaultdict(list)
    for row in await connection.fetch(_QUERIES["stored_chunks"], generation_id, document_ids):
        identity = row["content_hash"], row["model_id"], row["symbol"], tuple(row["heading_path"])
        lines = row["start_line"], row["end_line"]
        location = row["ordinal"], *lines, row["page"], row["tokens"]
        by_document[row["document_id"]].append(StoredChunk(row["id"], identity, location))
    return by_document


async def take_ids(connection: asyncpg.Connection, count: int) -> list[int]:
    """Ids for new chunks."""
    chunk_ids: list[int] = await connection.fetchval(_QUERIES["take_chunk_ids"], count)
    return chunk_ids


async def insert(
    connection: asyncpg.Connection,
    generation_id: int,
    agent: str,
    chunk_ids: Sequence[int],
    rows: Sequence[tuple[int, NewChunk]],
) -> None:
    """Add chunks with their ids, each with its document's id."""
    columns = [
        (chunk_id, document_id, *_columns(new))
        for chunk_id, (document_id, new) in zip(chunk_ids, rows, strict=True)
    ]
    await connection.execute(
        _QUERIES["insert_chunks"],
        generation_id,
        agent,
        *(list(column) for column in zip(*columns, strict=True)),
        timeout=_LARGE_TIMEOUT_S if len(rows) > _LARGE_ROWS else None,
    )


def _columns(new: NewChunk) -> tuple[object, ...]:
    write = new.write
    return (
        new.model_id,
        *new.location,
        write.symbol,
        write.content_hash,
        write.content,
        json.dumps(write.heading_path) if write.heading_path else None,
    )


async def move(
    connection: asyncpg.Connection, generation_id: int, moved: Sequence[tuple[int, Location]]
) -> None:
    """Update the location of kept chunks in their document."""
    rows = [(chunk_id, *location) for chunk_id, location in sorted(moved)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    await connection.execute(_QUERIES["move_chunks"], generation_id, *columns)


async def delete(
    connection: asyncpg.Connection, generation_id: int, chunk_ids: Sequence[int]
) -> None:
    """Remove chunks and their vectors."""
    await connection.execute(_QUERIES["delete_chunks"], generation_id, chunk_ids)
