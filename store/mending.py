"""Taking back what the log never had, and making room for what it has.

Each is one transaction that holds the document; where a worker was there first, nothing happens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from events.models import Origin
from events.ranking import Rank, rank_of
from store import ledger
from store.database import EVERY_AGENT, Database
from store.generations import Generation
from store.named_queries import named
from store.origins import columns_of, origin_of

__all__ = ["enter_outcome", "forget_vectors", "place_document", "remove_document"]

_QUERIES = named("inspecting")

Key = tuple[str, str]
Order = tuple[int, int]


async def remove_document(
    database: Database, generation: Generation, key: Key, seen_at: Order
) -> bool:
    """Delete a document with all its rows, if it still stands where it was seen."""
    async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        at = generation.id, *key, *seen_at
        document_id = await connection.fetchval(_QUERIES["hold_document"], *at)
        if document_id is None:
            return False
        for query in ("remove_members", "remove_chunks", "remove_document"):
            await connection.execute(_QUERIES[query], generation.id, document_id)
    return True


async def place_document(
    database: Database,
    generation: Generation,
    key: Key,
    seen_at: Order,
    place: Order,
    origin: Origin | None,
) -> bool:
    """Say that a document is of another change of the log, if it still stands where it was seen.

    For one that stands where the log has nothing of it: its rows are to be written anew then.
    """
    async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        at = generation.id, *key, *seen_at
        document_id = await connection.fetchval(_QUERIES["hold_document"], *at)
        if document_id is None:
            return False
        await connection.execute(
            _QUERIES["place_document"], generation.id, document_id, *place, *columns_of(origin)
        )
    return True


async def forget_vectors(
    database: Database, generation: Generation, model: str, hashes: Collection[bytes]
) -> None:
    """Take texts for never embedded by a model."""
    async with database.scope(generation.project_id) as connection:
        await connection.execute(
            _QUERIES["forget_vectors"], generation.project_id, model, list(hashes)
        )


async def enter_outcome(
    database: Database,
    generation: Generation,
    keys: Sequence[Key],
    rank: Rank,
    entry: ledger.Entry,
) -> bool:
    """Note in the ledger that a change is applied, if its documents stand there or further on.

    ``keys``: the document that it is of first; ``rank``: that of the change; ``entry`` calls it
    indexed.
    """
    async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        ranks: list[Rank] = []
        for key in keys:
            row = await connection.fetchrow(_QUERIES["hold_place"], generation.id, *key)
            if row is None:
                return False
            ranks.append(rank_of(row["position"], row["partition"], origin_of(row)))
        if min(ranks) < rank:
            return False
        if ranks[0] != rank:
            entry = replace(entry, outcome="superseded")
        await ledger.record(connection, generation.project_id, [entry])
    return True
