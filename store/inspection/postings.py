"""Checks that the keyword index is intact: each chunk in one segment, each segment as written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt

from store.postgres.named_queries import named
from store.search.keyword.postings import MAX_COUNT, Postings, decode_chunks, decode_inline
from store.search.keyword.rows import from_rows

__all__ = ["ChunkOwner", "PostingsSurvey", "chunk_owners", "survey_postings"]

_QUERIES = named("inspection")
_KEYWORD = named("keyword")

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PostingsSurvey:
    """Findings about the segments of a generation.

    ``broken``: reason by id of the segments that cannot be read or lack postings. ``doubled``: ids
    of segments that share chunks with larger ones. ``orphans``: segments of which only postings are
    left. ``missing``: chunks that no segment holds, or only a broken one whose chunk list is
    unreadable.
    """

    broken: Mapping[int, str]
    doubled: frozenset[int]
    orphans: frozenset[int]
    missing: tuple[int, ...]

    @property
    def to_rewrite(self) -> list[int]:
        """Segments that must be rewritten."""
        return sorted({*self.broken, *self.doubled, *self.orphans})


async def survey_postings(connection: asyncpg.Connection, generation_id: int) -> PostingsSurvey:
    """Read and check every segment of a generation.

    The transaction must be in a scope that sees every agent's rows, and no segments may be merged
    during it: it must be a snapshot or hold the generation's maintenance lock.
    """
    chunk_ids = np.array(
        await connection.fetchval(_QUERIES["chunk_ids"], generation_id) or [], np.int64
    )
    orphans = await connection.fetch(_QUERIES["orphan_postings"], generation_id)
    holdings: dict[int, Int64s] = {}
    broken: dict[int, str] = {}
    for row in await connection.fetch(_QUERIES["segments"], generation_id):
        segment_id = row["segment_id"]
        try:
            holdings[segment_id] = await _inspect(connection, generation_id, row)
        except ValueError as error:
            broken[segment_id] = str(error)
    return PostingsSurvey(
        broken,
        _doubled(holdings),
        frozenset(row["segment_id"] for row in orphans),
        _missing(chunk_ids, holdings),
    )


async def _inspect(
    connection: asyncpg.Connection, generation_id: int, row: Mapping[str, Any]
) -> Int64s:
    """Chunk ids of an intact segment.

    Raises:
        ValueError: the segment is not intact; the message gives the reason.
    """
    packed = None
    if row["postings"] is None:
        packed = await connection.fetch(
            _KEYWORD["read_postings_for_merge"], generation_id, row["segment_id"]
        )
    return await asyncio.to_thread(_check, row, packed)


def _check(row: Mapping[str, Any], packed: list[Any] | None) -> Int64s:
    try:
        chunk_ids, lengths = decode_chunks(row["documents"])
    except ValueError:
        raise ValueError("its list of chunks cannot be read") from None
    if len(chunk_ids) != row["chunks"] or int(lengths.sum()) != row["terms"]:
        raise ValueError("its list of chunks differs from the one that was written")
    try:
        if packed is None:
            postings = decode_inline(row["documents"], row["postings"])
        else:
            postings = from_rows(chunk_ids, lengths, packed)
    except ValueError:
        raise ValueError("its postings cannot be read") from None
    _check_counts(postings)
    return chunk_ids


def _check_counts(postings: Postings) -> None:
    """Check that each chunk's counts add up to its length, unless a count is capped.

    Raises:
        ValueError: they do not.
    """
    chunks = len(postings.chunk_ids)
    if len(postings.slots) and int(postings.slots.max()) >= chunks:
        raise ValueError("its postings refer to chunks that it does not hold")
    totals = np.bincount(postings.slots, postings.counts, chunks).astype(np.int64)
    capped = np.zeros(chunks, bool)
    capped[postings.slots[postings.counts == MAX_COUNT]] = True
    lengths = postings.lengths.astype(np.int64)
    if np.any(totals > lengths) or np.any((totals < lengths) & ~capped):
        raise ValueError("its postings are incomplete")


def _doubled(holdings: Mapping[int, Int64s]) -> frozenset[int]:
    """Segments that share chunks with larger ones."""
    if not holdings:
        return frozenset()
    ordered = sorted(holdings.items(), key=lambda item: (-len(item[1]), item[0]))
    held = np.concatenate([chunk_ids for _, chunk_ids in ordered])
    owners = np.repeat([segment_id for segment_id, _ in ordered], [len(ids) for _, ids in ordered])
    repeated = np.ones(len(held), bool)
    repeated[np.unique(held, return_index=True)[1]] = False
    return frozenset(owners[repeated].tolist())


def _missing(chunk_ids: Int64s, holdings: Mapping[int, Int64s]) -> tuple[int, ...]:
    held = np.concatenate(list(holdings.values())) if holdings else np.empty(0, np.int64)
    return tuple(np.setdiff1d(chunk_ids, held).tolist())


@dataclass(frozen=True, slots=True)
class ChunkOwner:
    """A chunk by its document."""

    chunk_id: int
    ordinal: int
    agent: str
    uri: str


async def chunk_owners(
    connection: asyncpg.Connection, generation_id: int, chunk_ids: Sequence[int]
) -> list[ChunkOwner]:
    """Owners of chunks: their documents and their ordinals there."""
    if not chunk_ids:
        return []
    rows = await connection.fetch(_QUERIES["chunk_owners"], generation_id, chunk_ids)
    return [ChunkOwner(**row) for row in rows]
