"""Repairs of documents, vectors and ledger entries that do not match the log.

Each repair of a document is one transaction that locks it. If a worker has changed the document
before, nothing happens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from events.names import DocumentKey, LogPosition, Rank, rank_of
from store.documents import ledger
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.types import DocumentWrite, columns_of, origin_of

__all__ = ["enter_outcome", "forget_vectors", "move_document", "remove_document"]

_QUERIES = named("inspection")


async def remove_document(
    database: Database, generation: Generation, key: DocumentKey, stored: LogPosition
) -> bool:
    """Delete a document with all its rows, if its log position is still ``stored``."""
    async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        at = generation.id, *key, *stored
        document_id = await connection.fetchval(_QUERIES["hold_document"], *at)
        if document_id is None:
            return False
        for query in ("remove_members", "remove_chunks", "remove_document"):
            await connection.execute(_QUERIES[query], generation.id, document_id)
    return True


async def move_document(
    database: Database,
    generation: Generation,
    key: DocumentKey,
    stored: LogPosition,
    write: DocumentWrite,
) -> None:
    """Give a document the log position of ``write``, if its position is still ``stored``.

    Its rows stay, and must then be written again. It still fences changes older than ``write``.
    """
    origin = columns_of(write.origin)
    async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        at = generation.id, *key, *stored
        await connection.execute(_QUERIES["move_document"], *at, *write.log_position, *origin)


async def forget_vectors(
    database: Database, generation: Generation, model: str, hashes: Collection[bytes]
) -> None:
    """Remove the cached vectors of texts, so that the model embeds them again."""
    async with database.scope(generation.project_id) as connection:
        await connection.execute(
            _QUERIES["forget_vectors"], generation.project_id, model, list(hashes)
        )


async def enter_outcome(
    database: Database,
    generation: Generation,
    keys: Sequence[DocumentKey],
    rank: Rank,
    entry: ledger.Entry,
) -> bool:
    """Record in the ledger that a change is applied, if its documents have its rank or a higher.

    ``keys``: the documents of the change, its main document first; ``rank``: rank of the change;
    ``entry``: its ledger entry, with the outcome "indexed".
    """
    async with database.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        ranks: list[Rank] = []
        for key in keys:
            row = await connection.fetchrow(_QUERIES["lock_document"], generation.id, *key)
            if row is None:
                return False
            ranks.append(rank_of(LogPosition(row["position"], row["partition"]), origin_of(row)))
        if min(ranks) < rank:
            return False
        if ranks[0] != rank:
            entry = replace(entry, outcome="superseded")
        await ledger.record(connection, generation.project_id, [entry])
    return True
