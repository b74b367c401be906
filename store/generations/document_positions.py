"""Log position of each stored document: the position of the change that produced it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from events.models import Origin
from events.names import DocumentKey, LogPosition, Rank, rank_of
from store.documents import ledger
from store.documents.ledger import Verdict
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.types import origin_of

__all__ = ["DocumentPosition", "DocumentPositions"]

_QUERIES = named("document_positions")
_PREFETCHED = 1_000


@dataclass(frozen=True, slots=True)
class DocumentPosition:
    """A stored document without its content, and the change that produced this version."""

    agent: str
    uri: str
    position: int
    partition: int
    deleted: bool
    kind: str
    published_at: datetime
    origin: Origin | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Create from a row of documents."""
        values = {name: value for name, value in row.items() if not name.startswith("source_")}
        return cls(**values, origin=origin_of(row))

    @property
    def key(self) -> DocumentKey:
        """Agent ('' for a shared document) and uri."""
        return DocumentKey(self.agent, self.uri)

    @property
    def log_position(self) -> LogPosition:
        """Log position: position and partition."""
        return LogPosition(self.position, self.partition)

    @property
    def rank(self) -> Rank:
        """Rank of the change that produced the document's current version."""
        return rank_of(self.log_position, self.origin)


class DocumentPositions:
    """Reads the log positions of the documents of generations, private ones included.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, generation: Generation) -> AsyncIterator[DocumentPosition]:
        """All documents of a generation, tombstones included, with few in memory at a time."""
        scope = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            query = _QUERIES["positions"]
            async for row in connection.cursor(query, generation.id, prefetch=_PREFETCHED):
                yield DocumentPosition.of(row)

    async def moment(self, project_id: int) -> int:
        """The snapshot's xmin.

        Every transaction with a lower id has finished and is visible to later reads.
        """
        async with self._database.scope(project_id) as connection:
            return int(await connection.fetchval(_QUERIES["moment"]))

    async def newer(
        self, here: Generation, there: Generation, since: int | None = None
    ) -> list[DocumentPosition]:
        """Documents of ``here`` that ``there`` lacks or has in an older version, in log order.

        ``since``: a result of ``moment``; only documents are compared that were written after it,
        or by a transaction that had not finished then.
        """
        scope = here.project_id, EVERY_AGENT, here.id
        query = _QUERIES["keep_positions" if since is None else "keep_changed_positions"]
        async with self._database.scope(*scope) as connection:
            kept = await connection.execute(
                query.format(generation_id=int(here.id), since=int(since or 0))
            )
            if kept == "SELECT 0":
                return []
            await connection.execute(_QUERIES["analyze_positions"])
            await connection.execute(_QUERIES["enter_generation"], str(there.id))
            rows = await connection.fetch(_QUERIES["newer_positions"], there.id)
        return [DocumentPosition.of(row) for row in rows]

    async def members(self, generation: Generation, collection: str) -> set[DocumentKey]:
        """Documents of a collection."""
        scope = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            rows = await connection.fetch(_QUERIES["members"], generation.id, collection)
        return {DocumentKey(row["agent"], row["uri"]) for row in rows}

    async def rejected(self, project_id: int) -> set[LogPosition]:
        """Log positions of the changes that were dead-lettered."""
        async with self._database.scope(project_id) as connection:
            return await ledger.rejected(connection, project_id)

    async def ineffective(self, generation: Generation) -> set[LogPosition]:
        """Log positions of those of which no document of the generation results either."""
        scope = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            return await ledger.ineffective(connection, generation.project_id, generation.id)

    async def verdicts(
        self, project_id: int, log_positions: Collection[LogPosition]
    ) -> dict[LogPosition, Verdict]:
        """Verdicts of the ledger on changes; changes without an entry are absent."""
        async with self._database.scope(project_id) as connection:
            return await ledger.verdicts_of(connection, project_id, log_positions)
