"""Contexts of chunks: those that wait, those that a language model has written, and their cache.

A chunk that gets a context gets a new row and a new id, because its terms and its vector change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import asyncpg

from events.names import LogPosition
from store.documents import chunks, costs, pending
from store.documents.chunks import NewChunk
from store.documents.costs import Purpose, Usage
from store.generations.catalog import Generation
from store.postgres.connection import WriteConflict
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.keyword import writer as keyword
from store.search.keyword.writer import ChunkText, segments_of

__all__ = [
    "Author",
    "Context",
    "Contexts",
    "StoredChunk",
    "StoredDocument",
    "note",
]

_QUERIES = named("contexts")
_PENDING = named("pending")


@dataclass(frozen=True, slots=True)
class Author:
    """Language model that writes contexts, and the version of the prompt that it is given."""

    model: str
    prompt: int


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as a language model sees it.

    ``header`` is embedded before its text, by ``model``; with an empty model, it has no vector.
    ``waits``: its context is not written yet.
    """

    chunk_id: int
    content: str
    heading_path: tuple[str, ...]
    tokens: int
    model: str
    header: str
    waits: bool


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document with its chunks in order; ``agent`` is '' for a shared one.

    ``log_position``: that of the change that produced this version.
    """

    document_id: int
    agent: str
    uri: str
    title: str | None
    log_position: LogPosition
    chunks: Sequence[StoredChunk]


@dataclass(frozen=True, slots=True)
class Context:
    """Context of one chunk: a sentence, its key in the cache, and the new hash of the chunk.

    ``content_hash`` is that of the embedded text, as in ``ChunkWrite``.
    """

    sentence: str
    key: bytes
    content_hash: bytes


async def note(
    connection: asyncpg.Connection,
    generation_id: int,
    agent: str,
    chunk_ids: Sequence[int],
    rows: Sequence[tuple[int, NewChunk]],
) -> None:
    """Record that new chunks wait for contexts; ``rows`` have the document's id of each.

    Code examples have none: their text already has the words around them.
    """
    waiting = [
        (chunk_id, document_id, new.write.header)
        for chunk_id, (document_id, new) in zip(chunk_ids, rows, strict=True)
        if not new.write.is_example
    ]
    await connection.execute(
        _QUERIES["note"],
        generation_id,
        agent,
        [chunk_id for chunk_id, _, _ in waiting],
        [document_id for _, document_id, _ in waiting],
        [header for _, _, header in waiting],
    )


class Contexts:
    """Reads the chunks that wait for contexts, and writes the contexts.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def waiting(self, generation: Generation, after: int, limit: int) -> list[int]:
        """Ids above ``after`` of the first documents whose chunks wait for nothing but contexts."""
        async with self._scope(generation) as connection:
            rows = await connection.fetch(
                _QUERIES["waiting_documents"], generation.id, after, limit
            )
        return [row["document_id"] for row in rows]

    async def any_wait(self, generation: Generation) -> bool:
        """Return whether any chunk waits for its context, with or without a vector."""
        async with self._scope(generation) as connection:
            return bool(await connection.fetchval(_QUERIES["any_wait"], generation.id))

    async def document(self, generation: Generation, document_id: int) -> StoredDocument | None:
        """Read a document with its chunks. Returns None if it is deleted."""
        async with self._scope(generation) as connection:
            row = await connection.fetchrow(_QUERIES["read_document"], generation.id, document_id)
            if row is None:
                return None
            rows = await connection.fetch(_QUERIES["read_chunks"], generation.id, document_id)
        return StoredDocument(
            document_id,
            row["agent"],
            row["uri"],
            row["title"],
            LogPosition(row["position"], row["partition"]),
            [StoredChunk(**dict(chunk) | _headings(chunk)) for chunk in rows],
        )

    async def cached(
        self, generation: Generation, author: Author, keys: Collection[bytes]
    ) -> dict[bytes, str]:
        """Sentences in the project's cache, by key; those that are not cached are absent."""
        if not keys:
            return {}
        async with self._scope(generation) as connection:
            rows = await connection.fetch(
                _QUERIES["cached_sentences"],
                generation.project_id,
                author.model,
                author.prompt,
                list(keys),
            )
        return {row["key"]: row["sentence"] for row in rows}

    async def remember(
        self,
        generation: Generation,
        author: Author,
        sentences: Mapping[bytes, str],
        usages: Mapping[str, Usage],
    ) -> None:
        """Cache sentences by key, and enter their cost into the ledger, in one transaction.

        ``usages`` are by the token of the change that they were for.
        """
        purpose: Purpose = "context"
        async with self._scope(generation) as connection:
            if sentences:
                await connection.execute(
                    _QUERIES["cache_sentences"],
                    generation.project_id,
                    author.model,
                    author.prompt,
                    list(sentences),
                    list(sentences.values()),
                )
            await costs.add(connection, generation.project_id, author.model, purpose, usages)

    async def forget(self, generation: Generation, model: str) -> None:
        """Remove all sentences of a language model from the project's cache."""
        async with self._scope(generation) as connection:
            await connection.execute(_QUERIES["forget_sentences"], generation.project_id, model)

    async def apply(
        self, generation: Generation, document_id: int, contexts: Mapping[int, Context | None]
    ) -> int:
        """Give chunks their contexts, by chunk id; None: the chunk goes without.

        A chunk that was deleted or settled in between is left out, and so is one whose text with
        the context has no cached vector: it continues to wait. Returns the number of chunks that
        have a context now.
        """
        written = {
            chunk_id: context for chunk_id, context in contexts.items() if context is not None
        }
        async with self._scope(generation) as connection:
            document = await connection.fetchrow(
                _QUERIES["lock_document"], generation.id, document_id
            )
            if document is None:
                return 0
            await connection.execute(
                _QUERIES["go_without"],
                generation.id,
                document_id,
                [chunk_id for chunk_id, context in contexts.items() if context is None],
            )
            rows = await connection.fetch(
                _QUERIES["waiting_chunks"],
                generation.id,
                generation.project_id,
                list(written),
                [context.content_hash for context in written.values()],
            )
            ready = [row for row in rows if row["has_vector"]]
            if ready:
                await self._replace(connection, generation, document_id, document, ready, written)
        return len(ready)

    async def _replace(
        self,
        connection: asyncpg.Connection,
        generation: Generation,
        document_id: int,
        document: asyncpg.Record,
        rows: Sequence[asyncpg.Record],
        contexts: Mapping[int, Context],
    ) -> None:
        """Write chunks again under new ids, and delete the former rows."""
        former = [row["chunk_id"] for row in rows]
        chunk_ids = await chunks.take_ids(connection, len(rows))
        texts = [
            ChunkText(
                chunk_id,
                row["content"],
                document["uri"],
                document["title"],
                row["symbol"],
                row["heading_path"],
                context=contexts[row["chunk_id"]].sentence,
            )
            for chunk_id, row in zip(chunk_ids, rows, strict=True)
        ]
        segments = await asyncio.to_thread(segments_of, texts)
        new = [contexts[chunk_id] for chunk_id in former]
        pairs = former, chunk_ids
        await connection.execute(
            _QUERIES["copy_chunks"], generation.id, *pairs, [each.content_hash for each in new]
        )
        await connection.execute(
            _QUERIES["write_contexts"],
            generation.id,
            *pairs,
            [each.sentence for each in new],
            [each.key for each in new],
        )
        with_vector = await chunks.add_cached(
            connection, generation.project_id, generation.id, chunk_ids
        )
        if len(with_vector) < sum(row["needs_vector"] for row in rows):
            raise WriteConflict("a vector of a text with a context has left the cache")
        await keyword.add(connection, generation.id, segments)
        await pending.lock(connection, generation.id, [document_id])
        await connection.execute(_PENDING["remove_pending"], generation.id, [document_id], former)
        await chunks.delete(connection, generation.id, former)

    def _scope(self, generation: Generation) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._database.scope(generation.project_id, EVERY_AGENT, generation.id)


def _headings(row: asyncpg.Record) -> dict[str, tuple[str, ...]]:
    return {"heading_path": tuple(row["heading_path"])}
