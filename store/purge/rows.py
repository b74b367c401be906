"""Removal of the rows that deleted documents leave; ``store.purge.rewriter`` rewrites the files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from events.names import LogPosition
from store.documents import ledger
from store.generations.catalog import Generation
from store.postgres.locks import EVERY_PROJECT, Lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.keyword.purge import PurgedWords, purge_words

__all__ = ["DeletedRows"]

_QUERIES = named("purge")
_AT_ONCE = 5_000


class DeletedRows:
    """Leftovers of one project's deleted documents.

    Every method raises ``Unavailable`` if Postgres cannot be reached. Work done before stays done,
    and every method can be called again.
    """

    def __init__(self, database: Database, project_id: int) -> None:
        self._database = database
        self._project_id = project_id

    async def purge_words(self, generation: Generation) -> PurgedWords:
        """Drop postings of deleted chunks, and words that no remaining chunk has."""
        scope = self._project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            await Lock.MAINTENANCE.acquire(connection, generation.id)
            return await purge_words(connection, generation.id)

    async def purge_caches(self, generations: Sequence[Generation]) -> tuple[int, int]:
        """Drop cached vectors and contexts that nothing uses; return both numbers.

        Waits for a process that writes contexts, since it may have read a deleted document.
        ``generations``: all generations of the project.
        """
        async with (
            self._database.connection() as connection,
            Lock.CONTEXTS.holding(connection, EVERY_PROJECT, wait=True),
        ):
            vectors = await self.purge_vectors(generations)
            return vectors, await self.purge_contexts(generations)

    async def purge_vectors(self, generations: Sequence[Generation]) -> int:
        """Drop cached vectors whose text no chunk of any generation has; return their number.

        ``generations``: all generations of the project.
        """
        unused = await self._unused_vectors(generations[0])
        for generation in generations[1:]:
            unused -= await self._used(generation, unused)
        dropped = 0
        for batch in _batches(unused):
            async with self._database.scope(self._project_id) as connection:
                dropped += await connection.fetchval(
                    _QUERIES["drop_vectors"], self._project_id, batch
                )
        return dropped

    async def purge_contexts(self, generations: Sequence[Generation]) -> int:
        """Drop cached contexts that no chunk of any generation has; return their number.

        ``generations``: all generations of the project.
        """
        used: set[bytes] = set()
        for generation in generations:
            scope = self._project_id, EVERY_AGENT, generation.id
            async with self._database.scope(*scope) as connection:
                rows = await connection.fetch(_QUERIES["used_keys"], generation.id)
            used |= {row["context_key"] for row in rows}
        async with self._database.scope(self._project_id) as connection:
            return int(
                await connection.fetchval(_QUERIES["drop_contexts"], self._project_id, list(used))
            )

    async def silence_rejections(self, log_positions: Collection[LogPosition]) -> int:
        """Delete the reasons of rejections; return their number."""
        async with self._database.scope(self._project_id) as connection:
            return await ledger.silence_rejections(connection, self._project_id, log_positions)

    async def drop_contents(self, hashes: Collection[str]) -> int:
        """Drop contents that were published by reference, by hash (hex); return their number."""
        dropped = 0
        for batch in _batches({bytes.fromhex(sha256) for sha256 in hashes}):
            async with self._database.scope(self._project_id) as connection:
                dropped += await connection.fetchval(
                    _QUERIES["drop_contents"], self._project_id, batch
                )
        return dropped

    async def outbox(self) -> dict[str, bytes]:
        """Events in the outbox, by id."""
        async with self._database.scope(self._project_id) as connection:
            rows = await connection.fetch(_QUERIES["outbox_events"], self._project_id)
        return {row["event_id"]: row["event"] for row in rows}

    async def drop_outbox(self, event_ids: Collection[str]) -> int:
        """Remove events from the outbox; return their number."""
        async with self._database.scope(self._project_id) as connection:
            query = _QUERIES["drop_outbox"]
            return int(await connection.fetchval(query, self._project_id, list(event_ids)))

    async def count_chunks(self, generation: Generation, agent: str, uris: Collection[str]) -> int:
        """Number of chunks that a generation holds of some documents of an agent."""
        scope = self._project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            query = _QUERIES["count_chunks"]
            return int(await connection.fetchval(query, generation.id, agent, list(uris)))

    async def _unused_vectors(self, generation: Generation) -> set[bytes]:
        scope = self._project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            rows = await connection.fetch(
                _QUERIES["unused_vectors"], generation.id, self._project_id
            )
        return {row["content_hash"] for row in rows}

    async def _used(self, generation: Generation, hashes: Collection[bytes]) -> set[bytes]:
        scope = self._project_id, EVERY_AGENT, generation.id
        used: set[bytes] = set()
        for batch in _batches(hashes):
            async with self._database.scope(*scope) as connection:
                rows = await connection.fetch(_QUERIES["used_hashes"], generation.id, batch)
            used |= {row["content_hash"] for row in rows}
        return used


def _batches(hashes: Collection[bytes]) -> list[list[bytes]]:
    ordered = sorted(hashes)
    return [ordered[start : start + _AT_ONCE] for start in range(0, len(ordered), _AT_ONCE)]
