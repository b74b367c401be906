"""Collections: named sets of documents; a document may be in many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import asyncpg

from events.names import DocumentKey
from store.postgres.named_queries import named

__all__ = [
    "Size",
    "choose_strategy",
    "ensure",
    "replace",
    "shared_documents",
    "sizes",
    "strategies",
]

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


async def strategies(connection: asyncpg.Connection, project_id: int) -> dict[str, str]:
    """Strategies of chunking that the next replay builds with, by collection.

    That of '' is for documents in none of these collections.
    """
    rows = await connection.fetch(_QUERIES["list_strategies"], project_id)
    return {row["collection"]: row["strategy"] for row in rows}


async def choose_strategy(
    connection: asyncpg.Connection, project_id: int, collection: str, strategy: str
) -> None:
    """Choose the strategy of a collection, or with '' that of all other documents."""
    await connection.execute(_QUERIES["choose_strategy"], project_id, collection, strategy)


class Size(NamedTuple):
    """Documents, without deleted ones, and chunks of a collection."""

    documents: int
    chunks: int


async def sizes(connection: asyncpg.Connection, generation_id: int) -> dict[str, Size]:
    """Sizes of the collections of a generation, by name; empty ones are left out."""
    rows = await connection.fetch(_QUERIES["collection_sizes"], generation_id)
    return {row["name"]: Size(row["documents"], row["chunks"]) for row in rows}


async def shared_documents(
    connection: asyncpg.Connection, generation_id: int, names: Iterable[str]
) -> dict[DocumentKey, list[str]]:
    """Documents in two or more of some collections, with the names of these in order."""
    rows = await connection.fetch(_QUERIES["shared_documents"], generation_id, sorted(set(names)))
    return {DocumentKey(row["agent"], row["uri"]): row["names"] for row in rows}
