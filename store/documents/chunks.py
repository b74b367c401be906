"""Chunks of a document: their rows and vectors, and the difference from what it should have."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import asyncpg
from pgvector import HalfVector

from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.types import ChunkWrite, Vector, locator_text

__all__ = [
    "Difference",
    "Embedding",
    "NewChunk",
    "StoredChunk",
    "add",
    "add_cached",
    "cache_vectors",
    "cached",
    "compare",
    "delete",
    "insert",
    "insert_searchable",
    "known_hashes",
    "move",
    "stored",
    "take_ids",
]

_QUERIES = named("chunks")

_LARGE_ROWS = 1_000
_LARGE_TIMEOUT_S = 60.0
"""Timeout of the statement that inserts more than ``_LARGE_ROWS`` chunks."""

Identity = tuple[bytes, int | None, str | None, tuple[str, ...], bool, str | None]
"""Everything that a chunk is found by: hash, model, symbol, headings; whether it is a code example,
and its language. Equal chunks share it."""

Location = tuple[int, int, int, int | None, str | None, int]
"""Ordinal, start line, end line, page, locator as JSON with sorted keys, tokens.

A change of these does not require reindexing.
"""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's row, without its text."""

    chunk_id: int
    identity: Identity
    location: Location


class NewChunk(NamedTuple):
    """A chunk that needs a row. ``model_id`` is None if it gets no vector."""

    write: ChunkWrite
    model_id: int | None

    @property
    def identity(self) -> Identity:
        """Identity, comparable with that of a stored chunk."""
        write = self.write
        found_by = write.content_hash, self.model_id, write.symbol, write.heading_path
        return *found_by, write.is_example, write.language

    @property
    def location(self) -> Location:
        """Location in the document, comparable with that of a stored chunk."""
        write = self.write
        lines = write.start_line, write.end_line
        return write.ordinal, *lines, write.page, locator_text(write.locator), write.tokens


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
        found_by = row["content_hash"], row["model_id"], row["symbol"], tuple(row["heading_path"])
        identity = *found_by, row["is_example"], row["language"]
        lines = row["start_line"], row["end_line"]
        text = row["locator"]
        locator = None if text is None else locator_text(json.loads(text))
        location = row["ordinal"], *lines, row["page"], locator, row["tokens"]
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
    await connection.execute(
        _QUERIES["insert_chunks"],
        generation_id,
        agent,
        *_arrays(chunk_ids, rows),
        timeout=_LARGE_TIMEOUT_S if len(rows) > _LARGE_ROWS else None,
    )


async def insert_searchable(
    connection: asyncpg.Connection,
    generation: Generation,
    agent: str,
    chunk_ids: Sequence[int],
    rows: Sequence[tuple[int, NewChunk]],
    segments: Sequence[Sequence[object]],
) -> set[int]:
    """Add a few chunks with their keyword segments and the cached vectors of their texts.

    ``segments``: rows, see ``store.search.keyword.writer.segment_row``. Returns the ids of the
    chunks that have a vector now.
    """
    found = await connection.fetch(
        _QUERIES["insert_searchable"],
        generation.id,
        agent,
        *_arrays(chunk_ids, rows),
        generation.project_id,
        *(list(column) for column in zip(*segments, strict=True)),
    )
    return {row["id"] for row in found}


def _arrays(chunk_ids: Sequence[int], rows: Sequence[tuple[int, NewChunk]]) -> list[list[object]]:
    """Columns of new chunks with their ids, each with its document's id."""
    columns = [
        (chunk_id, document_id, *_columns(new))
        for chunk_id, (document_id, new) in zip(chunk_ids, rows, strict=True)
    ]
    return [list(column) for column in zip(*columns, strict=True)]


def _columns(new: NewChunk) -> tuple[object, ...]:
    write = new.write
    return (
        new.model_id,
        write.ordinal,
        write.start_line,
        write.end_line,
        write.tokens,
        write.symbol,
        write.content_hash,
        write.content,
        _rest(write),
    )


def _rest(write: ChunkWrite) -> str | None:
    """Columns that are at their defaults for most chunks, as JSON. None if all of them are."""
    columns = {
        "heading_path": write.heading_path or None,
        "page": write.page,
        "locator": write.locator,
        "is_example": write.is_example or None,
        "language": write.language,
        "surroundings": write.surroundings or None,
    }
    present = {name: value for name, value in columns.items() if value is not None}
    return json.dumps(present) if present else None


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


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one chunk."""

    chunk_id: int
    model_id: int
    content_hash: bytes
    vector: Vector
    is_example: bool = False


async def cached(
    connection: asyncpg.Connection, project_id: int, model: str, hashes: Sequence[bytes]
) -> dict[bytes, Vector]:
    """Cached vectors by content hash."""
    rows = await connection.fetch(_QUERIES["cached_vectors"], project_id, model, hashes)
    return {row["content_hash"]: row["embedding"].to_numpy() for row in rows}


async def known_hashes(
    connection: asyncpg.Connection, project_id: int, model: str, hashes: Sequence[bytes]
) -> set[bytes]:
    """Return the content hashes that have a cached vector of the model, without the vectors."""
    rows = await connection.fetch(_QUERIES["known_hashes"], project_id, model, hashes)
    return {row["content_hash"] for row in rows}


async def cache_vectors(
    connection: asyncpg.Connection,
    project_id: int,
    model_id: int,
    vectors: Mapping[bytes, Vector],
) -> None:
    """Cache vectors by content hash; vectors that are already cached stay unchanged."""
    hashes = sorted(vectors)
    halves = [HalfVector(vectors[content_hash]) for content_hash in hashes]
    await connection.execute(_QUERIES["cache_vectors"], project_id, model_id, hashes, halves)


async def add(
    connection: asyncpg.Connection,
    project_id: int,
    generation_id: int,
    agent: str,
    rows: Sequence[Embedding],
) -> None:
    """Store the vectors of new chunks, and cache the vectors by content hash."""
    await connection.execute(
        _QUERIES["add_embeddings"],
        project_id,
        generation_id,
        agent,
        [row.chunk_id for row in rows],
        [row.model_id for row in rows],
        [row.content_hash for row in rows],
        [HalfVector(row.vector) for row in rows],
        [row.is_example for row in rows],
    )


async def add_cached(
    connection: asyncpg.Connection, project_id: int, generation_id: int, chunk_ids: Sequence[int]
) -> set[int]:
    """Give chunks the cached vectors of their texts; return the ids of those that have one."""
    rows = await connection.fetch(_QUERIES["add_cached"], project_id, generation_id, chunk_ids)
    return {row["id"] for row in rows}
