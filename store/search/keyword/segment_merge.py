"""Merges small segments into large ones, so that a query reads few segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import asyncpg
import numpy as np

from store.postgres.connection import in_thread
from store.postgres.named_queries import named
from store.search.keyword.postings import MAX_CHUNKS, Postings, decode_chunks, decode_inline
from store.search.keyword.rows import from_rows
from store.search.keyword.writer import LARGE_TIMEOUT_S, Segment, insert_segment

__all__ = [
    "SegmentSize",
    "find_wasteful",
    "list_sizes",
    "merge_segments",
    "plan_merges",
    "sort_words",
]

FAN_IN = 8
"""Number of segments of similar size that are merged into one of the next size. A chunk is
rewritten about 5 times until its segment is full, and a query reads at most 35 small segments."""

MAX_DEAD_SHARE = 0.2
_WORD_ROWS = 512
_QUERIES = named("keyword")


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A segment and the number of chunks that it was written with.

    ``is_example``: its chunks are code examples.
    """

    segment_id: int
    chunks: int
    is_example: bool = False


def plan_merges(segments: Iterable[SegmentSize]) -> list[list[int]]:
    """Groups of ids of the segments to merge, oldest first; examples are merged with examples."""
    levels: dict[tuple[bool, int], list[SegmentSize]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment.segment_id):
        if segment.chunks <= MAX_CHUNKS // 2:
            levels[segment.is_example, _level(segment.chunks)].append(segment)
    return [group for level in levels.values() for group in _groups(level)]


def _level(chunks: int) -> int:
    """Size class of a segment: the integer logarithm of its chunks to the base ``FAN_IN``."""
    level = 0
    while chunks >= FAN_IN:
        chunks //= FAN_IN
        level += 1
    return level


def _groups(segments: Sequence[SegmentSize]) -> Iterable[list[int]]:
    """Groups that are worth merging: many segments, or enough chunks to fill one."""
    group: list[SegmentSize] = []
    for segment in segments:
        if _chunks(group) + segment.chunks > MAX_CHUNKS:
            yield _ids(group)
            group = []
        group.append(segment)
    if len(group) >= FAN_IN:
        yield _ids(group)


def _chunks(group: Iterable[SegmentSize]) -> int:
    return sum(segment.chunks for segment in group)


def _ids(group: Iterable[SegmentSize]) -> list[int]:
    return [segment.segment_id for segment in group]


async def list_sizes(connection: asyncpg.Connection, generation_id: int) -> list[SegmentSize]:
    """Every segment of a generation, oldest first."""
    rows = await connection.fetch(_QUERIES["list_segments"], generation_id)
    return [SegmentSize(row["segment_id"], row["chunks"], row["is_example"]) for row in rows]


async def merge_segments(
    connection: asyncpg.Connection, generation_id: int, segment_ids: Sequence[int]
) -> None:
    """Replace segments by a single one, without the chunks that no longer exist.

    Either all of them hold code examples, or none does. Only one caller at a time may do this per
    generation. Queries and writers are not blocked; a query sees either all of the old segments or
    the new one.
    """
    rows = await connection.fetch(_QUERIES["read_for_merge"], generation_id, segment_ids)
    is_example = any(row["is_example"] for row in rows)
    parts = await _read(connection, generation_id, rows)
    chunk_ids = np.concatenate([part.chunk_ids for part in parts])
    alive = await _alive(connection, generation_id, chunk_ids.tolist())
    merged = await in_thread(connection, Postings.merge, parts, np.array(alive, np.int64))
    await connection.execute(
        _QUERIES["delete_postings"], generation_id, segment_ids, timeout=LARGE_TIMEOUT_S
    )
    await connection.execute(_QUERIES["delete_segments"], generation_id, segment_ids)
    if len(merged.chunk_ids):
        await insert_segment(connection, generation_id, Segment(merged, [], is_example))


async def find_wasteful(
    connection: asyncpg.Connection, generation_id: int, max_dead_share: float = MAX_DEAD_SHARE
) -> list[int]:
    """Ids of the segments whose share of deleted chunks is above ``max_dead_share``."""
    wasteful = []
    for segment in await list_sizes(connection, generation_id):
        rows = await connection.fetch(
            _QUERIES["read_for_merge"], generation_id, [segment.segment_id]
        )
        for row in rows:
            chunk_ids, _ = decode_chunks(row["documents"])
            alive = await _alive(connection, generation_id, chunk_ids.tolist())
            if segment.chunks - len(alive) > max_dead_share * segment.chunks:
                wasteful.append(segment.segment_id)
    return wasteful


async def _read(
    connection: asyncpg.Connection, generation_id: int, rows: Iterable[Mapping[str, Any]]
) -> list[Postings]:
    parts = []
    for row in rows:
        if row["postings"] is not None:
            parts.append(decode_inline(row["documents"], row["postings"]))
        else:
            postings = await connection.fetch(
                _QUERIES["read_postings_for_merge"],
                generation_id,
                row["segment_id"],
                timeout=LARGE_TIMEOUT_S,
            )
            chunk_ids, lengths = decode_chunks(row["documents"])
            parts.append(await in_thread(connection, from_rows, chunk_ids, lengths, postings))
    return parts


async def _alive(
    connection: asyncpg.Connection, generation_id: int, chunk_ids: Sequence[int]
) -> list[int]:
    rows = await connection.fetch(_QUERIES["alive_chunks"], generation_id, chunk_ids)
    return [row["id"] for row in rows]


async def sort_words(connection: asyncpg.Connection, generation_id: int) -> bool:
    """Move newly written words into the vocabulary; return whether more may be left.

    Only one caller at a time may do this per generation.
    """
    additions = await connection.fetch(_QUERIES["take_words"], generation_id, _WORD_ROWS)
    new: dict[int, set[str]] = defaultdict(set)
    for word in set(chain.from_iterable(row["words"].split("\n") for row in additions)):
        new[len(word)].add(word)
    rows = await connection.fetch(_QUERIES["read_whole_vocabulary"], generation_id, list(new))
    grown = _grown({row["length"]: row["words"] for row in rows}, new)
    if grown:
        await connection.execute(
            _QUERIES["upsert_vocabulary"], generation_id, list(grown), list(grown.values())
        )
    return len(additions) == _WORD_ROWS


def _grown(former: Mapping[int, str], new: Mapping[int, set[str]]) -> dict[int, str]:
    """Changed rows of the vocabulary: newline-separated words by their length."""
    grown = {}
    for length, words in new.items():
        old = set(former[length].split("\n")) if length in former else set()
        if words - old:
            grown[length] = "\n".join(sorted(old | words))
    return grown
