"""Collections: named sets of documents; a document may be in many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import asyncpg

from store.postgres.named_queries import named

__all__ = ["ensure", "replace"]

_QUERIES = named("collections")


async def ensure(connection: asyncpg.Connection, generation_id: int, names: Iterable[str]) -> None:
    """Create the collections that do not exist, always in order of name.

    A transaction that puts documents of several agents into collections calls it once beforehand.
    Otherwise two such transactions could deadlock on each other's new names.
    """
    wanted = sorted(set(names))
    if wanted:
        await connection.execute(_QUERIES["ensure_collections"], generation_id, wanted)


async def replace(
    connection: asyncpg.Connection,
    generation_id: int,
    agent: str,
    members: Mapping[int, Sequence[str]],
) -> None:
    """Put each document (by id) into exactly the collections named."""
    await connection.execute(_QUERIES["leave_collections"], generation_id, list(members))
    pairs = [
        (document_id, name) for document_id, names in members.items() for name in sorted(set(names))
    ]
    if not pairs:
        return
    await ensure(connection, generation_id, [name for _, name in pairs])
    await connection.execute(
        _QUERIES["join_collections"],
        generation_id,
        agent,
        [document_id for document_id, _ in pairs],
        [name for _, name in pairs],
    )
