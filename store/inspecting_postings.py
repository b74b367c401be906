"""Whether the keyword index is whole: every chunk in one segment, every segment as written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt

from store.keyword.postings import MAX_COUNT, Postings
from store.keyword.segments import decode_chunks, decode_inline
from store.named_queries import named

__all__ = ["ChunkOwner", "PostingsSurvey", "chunk_owners", "survey_postings"]

_QUERIES = named("inspecting")
_KEYWORD = named("keyword")

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PostingsSurvey:
    """What is wrong with the segments of a generation.

    ``broken``: reason by id of the segments that can't be read or lack postings. ``doubled``: ids
    of segments whose chunks larger ones have too. ``orphans``: segments of which only postings are
    left. ``missing``: chunks that no segment has, or only a broken one that can't tell its chunks.
    """

    broken: Mapping[int, str]
    doubled: frozenset[int]
    orphans: frozenset[int]
    missing: tuple[int, ...]

    @property
    def to_rewrite(self) -> list[int]:
        """Segments to be written anew."""
        return sorted({*self.broken, *self.doubled, *self.orphans})


async def survey_postings(connection: asyncpg.Connection, generation_id: int) -> PostingsSurvey:
    """Read every segment of a generation.

    For a transaction in a scope that sees every agent's rows, during which no segments are merged:
    a snapshot, or one that has the generation's upkeep lock.
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
    """Ids of a sound segment's chunks.

    Raises:
        ValueError: it isn't sound; says why.
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
        raise ValueError("its list of chunks can't be read") from None
    if len(chunk_ids) != row["chunks"] or int(lengths.sum()) != row["terms"]:
        raise ValueError("its list of chunks isn't the one that was written")
    try:
        if packed is None:
            postings = decode_inline(row["documents"], row["postings"])
        else:
            postings = Postings.from_packed(chunk_ids, lengths, [tuple(one) for one in packed])
    except ValueError:
        raise ValueError("its postings can't be read") from None
    _check_counts(postings)
    return chunk_ids


def _check_counts(postings: Postings) -> None:
    """A chunk's counts add up to its length, unless one is too large to be kept exactly."""
    chunks = len(postings.chunk_ids)
    if len(postings.places) and int(postings.places.max()) >= chunks:
        raise ValueError("its postings name chunks that it doesn't have")
    totals = np.bincount(postings.places, postings.counts, chunks).astype(np.int64)
    capped = np.zeros(chunks, bool)
    capped[postings.places[postings.counts == MAX_COUNT]] = True
    lengths = postings.lengths.astype(np.int64)
    if np.any(totals > lengths) or np.any((totals < lengths) & ~capped):
        raise ValueError("its postings aren't complete")


def _doubled(holdings: Mapping[int, Int64s]) -> frozenset[int]:
    """Segments that share chunks with larger ones."""
    if not holdings:
        return frozenset()
    ordered = sorted(holdings.items(), key=lambda one: (-len(one[1]), one[0]))
    held = np.concatenate([chunk_ids for _, chunk_ids in ordered])
    owners = np.repeat([segment_id for segment_id, _ in ordered], [len(ids) for _, ids in ordered])
    again = np.ones(len(held), bool)
    again[np.unique(held, return_index=True)[1]] = False
    return frozenset(owners[again].tolist())


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
    """Where chunks belong, by document."""
    if not chunk_ids:
        return []
    rows = await connection.fetch(_QUERIES["chunk_owners"], generation_id, chunk_ids)
    return [ChunkOwner(**row) for row in rows]
