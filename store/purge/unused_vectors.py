"""Expiry of cached vectors that no chunk has had for some time.

A check reads the hashes of all chunks of a project into a bitmap, and then the hashes of the cache.
A vector without a chunk is marked, and deleted when a later check still finds it without one. A
check may take an unused vector for a used one; the next check finds it. The memory of a check is
limited, whatever the size of the project.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from store.generations import catalog
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["UsedHashes", "expire_vectors"]

_QUERIES = named("expiry")
_PAGE_ROWS = 10_000
_BITS_PER_HASH = 16
_LEAST_BITS, _MOST_BITS = 2**13, 2**28


class UsedHashes:
    """Set of hashes without false negatives, a Bloom filter; of 400 unused hashes it has about one.

    The bitmap has at most 34 MiB, so that the share of errors grows beyond 16 million hashes. Which
    hashes it takes for used ones differs from filter to filter.

    Args:
        expected: number of hashes.
    """

    def __init__(self, expected: int) -> None:
        bits = min(max(expected * _BITS_PER_HASH, _LEAST_BITS), _MOST_BITS)
        self._bits = bits + secrets.randbelow(bits // 16)
        self._bitmap = np.zeros(self._bits // 8 + 1, np.uint8)

    def add(self, hashes: bytes) -> None:
        """Add hashes of 32 bytes each, one after the other."""
        byte, mask = self._places(hashes)
        np.bitwise_or.at(self._bitmap, byte, mask)

    def contain(self, hashes: bytes) -> npt.NDArray[np.bool_]:
        """Return for each hash of 32 bytes whether it was added."""
        byte, mask = self._places(hashes)
        present: npt.NDArray[np.bool_] = ((self._bitmap[byte] & mask) != 0).all(axis=1)
        return present

    def _places(self, hashes: bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]:
        """Byte and bit of each of the four words of each hash."""
        words = np.frombuffer(hashes, np.uint64).reshape(-1, 4) % np.uint64(self._bits)
        mask = np.left_shift(np.uint8(1), (words % np.uint64(8)).astype(np.uint8))
        return (words // np.uint64(8)).astype(np.intp), mask


async def expire_vectors(
    database: Database, project_id: int, now: datetime, unused_before: datetime
) -> int:
    """Mark the cached vectors that no generation uses; delete those marked before a time.

    Returns the number of deleted vectors.

    Raises:
        Unavailable: Postgres cannot be reached; the next check begins again.
    """
    used = await _used_hashes(database, project_id)
    expired = 0
    after: tuple[int, bytes] = (-1, b"")
    while True:
        async with database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["read_cached_hashes"], project_id, *after, _PAGE_ROWS
            )
            if not rows:
                break
            expired += await _settle(connection, project_id, rows, used, now, unused_before)
        after = rows[-1]["model_id"], rows[-1]["content_hash"]
    async with database.scope(project_id) as connection:
        await connection.execute(_QUERIES["note_check"], project_id, now)
    return expired


async def _used_hashes(database: Database, project_id: int) -> UsedHashes:
    """Hashes of the chunks of every generation that is not being dropped."""
    async with database.scope(project_id) as connection:
        generations = await catalog.listed(connection, project_id)
    kept = [generation.id for generation in generations if generation.state != "dropping"]
    chunks = 0
    for generation_id in kept:
        async with database.scope(project_id, EVERY_AGENT, generation_id) as connection:
            chunks += await connection.fetchval(_QUERIES["count_chunks"], generation_id)
    used = UsedHashes(chunks)
    for generation_id in kept:
        last: int | None = -1
        while last is not None:
            async with database.scope(project_id, EVERY_AGENT, generation_id) as connection:
                row = await connection.fetchrow(
                    _QUERIES["read_chunk_hashes"], generation_id, last, _PAGE_ROWS
                )
            for hashes in (row["hashes"], row["plain_hashes"]):
                used.add(hashes or b"")
            last = row["last"]
    return used


async def _settle(
    connection: Any,
    project_id: int,
    rows: Sequence[Mapping[str, Any]],
    used: UsedHashes,
    now: datetime,
    unused_before: datetime,
) -> int:
    """Delete, mark and unmark some vectors of the cache; return the number of deleted ones."""
    is_used = used.contain(b"".join(row["content_hash"] for row in rows))
    gone: list[tuple[int, bytes]] = []
    marked: list[tuple[int, bytes, datetime | None]] = []
    for row, has_chunk in zip(rows, is_used, strict=True):
        since = row["unused_since"]
        key = row["model_id"], row["content_hash"]
        if has_chunk and since is not None:
            marked.append((*key, None))
        elif not has_chunk and since is None:
            marked.append((*key, now))
        elif not has_chunk and since is not None and since < unused_before:
            gone.append(key)
    if marked:
        await connection.execute(_QUERIES["mark_vectors"], project_id, *_columns(marked))
    if not gone:
        return 0
    return int(
        await connection.fetchval(_QUERIES["drop_unused_vectors"], project_id, *_columns(gone))
    )


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
