"""Bulk writes of new documents into a generation that is not live yet."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import asyncpg

from events.names import DocumentKey
from runtime.errors import Unavailable
from store.documents import chunks, collections, fence
from store.documents.fence import Revision
from store.generations.catalog import Generation, Models
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.keyword import writer as keyword
from store.search.keyword.writer import ChunkText, segments_of
from store.types import ChunkWrite, DocumentWrite, Vector, locator_text

__all__ = ["BulkWriter", "DocumentsInTheWay"]

_QUERIES = named("bulk")
_STAGED = "staged_chunks"
_COLUMNS = (
    *("id", "document_id", "agent", "model_id", "ordinal", "start_line", "end_line", "page"),
    *("locator", "tokens", "symbol", "heading_path", "content_hash", "content", "header"),
    *("is_example", "language", "surroundings"),
)
_NAMED_IN_ERRORS = 3


NewChunk = tuple[int, int, DocumentWrite, ChunkWrite]
"""A chunk with its id, its document's id, and its document."""


class DocumentsInTheWay(Unavailable):
    """Documents already have a row: another writer added them; list again what is missing."""


class BulkWriter:
    """Adds documents to one generation: rows by COPY, vectors from the cache within the server.

    It accepts only documents that have no row in the generation yet; use ``Store.rebuild`` for the
    others. Nothing is entered into the ledger. A commit does not wait for the disk: a crash may
    undo the latest commits, in reverse order, until a later commit that waits (that of the switch).
    """

    def __init__(self, database: Database, project_id: int, generation: Generation) -> None:
        self._database = database
        self._project_id = project_id
        self._generation_id = generation.id
        self._has_contexts = bool(generation.recipe.context)
        self._models = Models(database)

    async def write(self, writes: Sequence[DocumentWrite]) -> int:
        """Add the documents in one transaction and return the number of chunks.

        Each write is the new version of its ``uri`` (``old_uri`` is ignored); tombstones are
        documents without chunks. A given vector is put into the cache. If a chunk's vector is None,
        the chunk gets the cached vector or stays pending; if its ``model`` is '', it gets none.
        Each 65,536 chunks become one keyword segment; 16,000 chunks are a good size for one call.

        Raises:
            DocumentsInTheWay: a document has a row already; nothing is written.
            ConfigurationError: a vector's width is not that of its model.
            Unavailable: Postgres cannot be reached.
        """
        given = await self._given_vectors(writes)
        scope = self._project_id, EVERY_AGENT, self._generation_id
        async with self._database.scope(*scope) as connection:
            await connection.execute(_QUERIES["stage"])
            document_ids = await self._insert_documents(connection, writes)
            for model_id, vectors in given.items():
                await chunks.cache_vectors(connection, self._project_id, model_id, vectors)
            numbered = await _numbered(connection, writes, document_ids)
            if numbered:
                await self._insert_chunks(connection, numbered)
        return len(numbered)

    async def _given_vectors(
        self, writes: Iterable[DocumentWrite]
    ) -> dict[int, dict[bytes, Vector]]:
        """Vectors by model id and content hash."""
        vectors: defaultdict[int, dict[bytes, Vector]] = defaultdict(dict)
        for write in writes:
            for chunk in write.chunks:
                if chunk.vector is not None:
                    model_id = await self._models.ensure(chunk.model, len(chunk.vector))
                    vectors[model_id][chunk.content_hash] = chunk.vector
        return vectors

    async def _insert_documents(
        self, connection: asyncpg.Connection, writes: Sequence[DocumentWrite]
    ) -> dict[DocumentKey, int]:
        by_agent: defaultdict[str, dict[str, Revision]] = defaultdict(dict)
        for write in sorted(writes, key=lambda write: write.uri):
            revision = Revision(write.uri, write, write.change == "delete")
            by_agent[write.agent or ""][write.uri] = revision
        names = [name for write in writes for name in write.collections]
        await collections.ensure(connection, self._generation_id, names)
        ids: dict[DocumentKey, int] = {}
        for agent, revisions in sorted(by_agent.items()):
            added = await fence.advance(connection, self._generation_id, agent, revisions)
            stored = [uri for uri in revisions if uri not in added or not added[uri].created]
            if stored:
                raise DocumentsInTheWay(_in_the_way(stored), "list again what is missing")
            ids |= {
                DocumentKey(agent, uri): document.document_id for uri, document in added.items()
            }
            members = {
                added[uri].document_id: revision.write.collections
                for uri, revision in revisions.items()
                if revision.write.collections and not revision.deleted
            }
            if members:
                await collections.replace(connection, self._generation_id, agent, members)
        return ids

    async def _insert_chunks(
        self, connection: asyncpg.Connection, chunks: Sequence[NewChunk]
    ) -> None:
        texts = [_text(chunk_id, write, chunk) for chunk_id, _, write, chunk in chunks]
        segments = asyncio.create_task(asyncio.to_thread(segments_of, texts))
        names = {chunk.model for *_, chunk in chunks} - {""}
        models = {name: await self._models.ensure(name, None) for name in names}
        rows = _rows(chunks, models)
        await connection.copy_records_to_table(_STAGED, records=rows, columns=_COLUMNS)
        await connection.execute(_QUERIES["insert_chunks"], self._generation_id)
        at = self._project_id, self._generation_id
        await connection.execute(_QUERIES["insert_embeddings"], *at)
        note_pending = _QUERIES["note_pending"].format(generation_id=int(self._generation_id))
        await connection.execute(note_pending, self._generation_id)
        if self._has_contexts:
            await connection.execute(_QUERIES["note_contexts"], self._generation_id)
        await keyword.add(connection, self._generation_id, await segments)


async def _numbered(
    connection: asyncpg.Connection,
    writes: Sequence[DocumentWrite],
    document_ids: Mapping[DocumentKey, int],
) -> list[NewChunk]:
    count = sum(len(write.chunks) for write in writes)
    ids = iter(await connection.fetchval(_QUERIES["take_chunk_ids"], count) or ())
    return [
        (next(ids), document_ids[DocumentKey(write.agent or "", write.uri)], write, chunk)
        for write in writes
        for chunk in write.chunks
    ]


def _rows(chunks: Iterable[NewChunk], models: Mapping[str, int]) -> Iterator[tuple[object, ...]]:
    for chunk_id, document_id, write, chunk in chunks:
        yield (
            chunk_id,
            document_id,
            write.agent or "",
            models.get(chunk.model),
            chunk.ordinal,
            chunk.start_line,
            chunk.end_line,
            chunk.page,
            locator_text(chunk.locator),
            chunk.tokens,
            chunk.symbol,
            chunk.heading_path,
            chunk.content_hash,
            chunk.content,
            chunk.header,
            chunk.is_example,
            chunk.language,
            chunk.surroundings or None,
        )


def _text(chunk_id: int, write: DocumentWrite, chunk: ChunkWrite) -> ChunkText:
    return ChunkText(
        *(chunk_id, chunk.content, write.uri, write.title, chunk.symbol, chunk.heading_path),
        is_example=chunk.is_example,
        surroundings=chunk.surroundings,
    )


def _in_the_way(uris: Sequence[str]) -> str:
    examples = ", ".join(uris[:_NAMED_IN_ERRORS])
    return f"another writer stored {len(uris)} documents ({examples})"
