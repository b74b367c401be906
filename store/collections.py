"""Collections: named sets of documents; a document may be in many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from store.named_queries import named

__all__ = ["replace"]

_QUERIES = named("collections")


async def replace(
    connection: asyncpg.Connection,
    generation_id: int,
    agent: str,
    members: Mapping[int, Sequence[str]],
) -> None:
    """Put each document (by id) into exactly the collections named."""
    await connection.execute(_QUERIES["leave_collections"], generation_id, list(members))
    pairs = [(one, name) for one, names in members.items() for name in sorted(set(names))]
    if not pairs:
        return
    names = sorted({name for _, name in pairs})
    await connection.execute(_QUERIES["ensure_collections"], generation_id, names)
    await connection.execute(
        _QUERIES["join_collections"],
        generation_id,
        agent,
        [document_id for document_id, _ in pairs],
        [name for _, name in pairs],
    )
