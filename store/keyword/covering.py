"""Whether every chunk is in the keyword index."""

from __future__ import annotations

import asyncpg
import numpy as np

from store.keyword.segments import decode_chunks
from store.named_queries import named

__all__ = ["uncovered"]

_QUERIES = named("keyword")


async def uncovered(
    connection: asyncpg.Connection, generation_id: int
) -> list[tuple[tuple[str, str], int]]:
    """Documents (agent, uri) with chunks that no segment has, and how many.

    For a scope that sees every agent's rows.
    """
    segments = await connection.fetch(_QUERIES["segment_chunks"], generation_id)
    chunk_ids = await connection.fetchval(_QUERIES["all_chunk_ids"], generation_id)
    posted = [decode_chunks(row["documents"])[0] for row in segments]
    known = np.concatenate(posted) if posted else np.empty(0, np.int64)
    missing = np.setdiff1d(np.array(chunk_ids or [], np.int64), known)
    if not len(missing):
        return []
    rows = await connection.fetch(_QUERIES["owners"], generation_id, missing.tolist())
    return [((row["agent"], row["uri"]), row["chunks"]) for row in rows]
