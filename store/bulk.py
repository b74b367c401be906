"""Writing many new documents at once into a generation that nobody reads yet."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import asyncpg

from runtime.errors import Unavailable
from store import collections, documents, embeddings
from store.database import EVERY_AGENT, Database
from store.documents import Revision
from store.generations import Generation
from store.keyword import writing as keyword
from store.keyword.building import SegmentBuilder
from store.keyword.postings import MAX_CHUNKS, Postings
from store.named_queries import named
from store.projects import Models
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = ["BulkWriter", "DocumentsInTheWay", "VectorsMissing"]

_QUERIES = named("bulk")
_STAGED = "staged_chunks"
_COLUMNS = (
    *("id", "document_id", "agent", "model_id", "ordinal", "start_line", "end_line", "page"),
    *("tokens", "symbol", "heading_path", "content_hash", "content"),
)
_NAMED_IN_ERRORS = 3

DocumentKey = tuple[str, str]
"""Agent ('' for shared) and uri."""

NewChunk = tuple[int, int, DocumentWrite, ChunkWrite]
"""A chunk with its id, its document's id, and its document."""


class DocumentsInTheWay(Unavailable):
    """Documents have a row already: another writer was at work; see again what is missing."""


class VectorsMissing(Unavailable):
    """The cache lacks vectors that were to be taken from it: embed them first."""


class BulkWriter:
    """Adds documents to one generation: rows by COPY, vectors from the cache within the server.

    For documents that have no row there yet; whatever has one takes the way of ``Store.rebuild``.
    Nothing is entered into the ledger. A commit here doesn't wait for the disk: a crash may undo
    the last ones, in order, until some later commit elsewhere (that of the switch) has waited.
    """

    def __init__(self, database: Database, project_id: int, generation: Generation) -> None:
        self._database = database
        self._project_id = project_id
        self._generation_id = generation.id
        self._models = Models(database)

    async def write(self, writes: Sequence[DocumentWrite]) -> int:
        """Add the documents in one transaction; how many chunks that made.

        Each is what its ``uri`` shall be (``old_uri`` is not looked at); tombstones are documents
        without chunks. A chunk's vector goes into the cache where it is given; where it is None the
        cache must have it (a ``model`` of '' means: none is wanted). The chunks become one keyword
        segment, up to 65,536 of them; about 16,000 are a good measure for one call.

        Raises:
            DocumentsInTheWay: a document has a row already; nothing is written.
            VectorsMissing: the cache lacks a vector; nothing is written.
            ConfigurationError: a vector's width isn't that of its model.
            Unavailable: Postgres can't be reached.
        """
        given = await self._given_vectors(writes)
        scope = self._project_id, EVERY_AGENT, self._generation_id
        async with self._database.scope(*scope) as connection:
            await connection.execute(_QUERIES["stage"])
            document_ids = await self._insert_documents(connection, writes)
            for model_id, vectors in given.items():
                await embeddings.cache_vectors(connection, self._project_id, model_id, vectors)
            chunks = await _numbered(connection, writes, document_ids)
            if chunks:
                await self._insert_chunks(connection, chunks)
        return len(chunks)

    async def _given_vectors(
        self, writes: Iterable[DocumentWrite]
    ) -> dict[int, dict[bytes, Vector]]:
        """By model and hash."""
        found: defaultdict[int, dict[bytes, Vector]] = defaultdict(dict)
        for write in writes:
            for chunk in write.chunks:
                if chunk.vector is not None:
                    model_id = await self._models.ensure(chunk.model, len(chunk.vector))
                    found[model_id][chunk.content_hash] = chunk.vector
        return found

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
            added = await documents.advance(connection, self._generation_id, agent, revisions)
            known = [uri for uri in revisions if uri not in added or not added[uri].created]
            if known:
                raise DocumentsInTheWay(_in_the_way(known))
            ids |= {(agent, uri): one.document_id for uri, one in added.items()}
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
        segments = asyncio.create_task(asyncio.to_thread(_segments, chunks))
        models = await _model_ids(connection, chunks)
        rows = _rows(chunks, models)
        await connection.copy_records_to_table(_STAGED, records=rows, columns=_COLUMNS)
        await connection.execute(_QUERIES["insert_chunks"], self._generation_id)
        await self._insert_embeddings(connection, chunks)
        for postings, words in await segments:
            await keyword.insert_segment(connection, self._generation_id, postings)
            await keyword.insert_words(connection, self._generation_id, words)

    async def _insert_embeddings(
        self, connection: asyncpg.Connection, chunks: Sequence[NewChunk]
    ) -> None:
        query = _QUERIES["insert_embeddings"]
        status = await connection.execute(query, self._project_id, self._generation_id)
        wanted = sum(1 for *_, chunk in chunks if chunk.model)
        missing = wanted - int(status.split()[-1])
        if missing:
            query = _QUERIES["missing_vectors"]
            rows = await connection.fetch(query, self._project_id, _NAMED_IN_ERRORS)
            examples = ", ".join(row["content_hash"].hex() for row in rows)
            raise VectorsMissing(
                f"the cache lacks {missing} vectors ({examples}): embed them first"
            )


async def _numbered(
    connection: asyncpg.Connection,
    writes: Sequence[DocumentWrite],
    document_ids: Mapping[DocumentKey, int],
) -> list[NewChunk]:
    count = sum(len(write.chunks) for write in writes)
    ids = iter(await connection.fetchval(_QUERIES["take_chunk_ids"], count) or ())
    return [
        (next(ids), document_ids[write.agent or "", write.uri], write, chunk)
        for write in writes
        for chunk in write.chunks
    ]


async def _model_ids(
    connection: asyncpg.Connection, chunks: Sequence[NewChunk]
) -> dict[str, int | None]:
    names = {chunk.model for *_, chunk in chunks} - {""}
    found = await connection.fetch(_QUERIES["find_models"], sorted(names))
    known: dict[str, int | None] = {row["name"]: row["id"] for row in found}
    unknown = names - known.keys()
    if unknown:
        raise VectorsMissing(f"nothing was ever embedded by {min(unknown)}: embed it first")
    return known | {"": None}


def _rows(
    chunks: Iterable[NewChunk], models: Mapping[str, int | None]
) -> Iterator[tuple[object, ...]]:
    for chunk_id, document_id, write, chunk in chunks:
        yield (
            chunk_id,
            document_id,
            write.agent or "",
            models[chunk.model],
            chunk.ordinal,
            chunk.start_line,
            chunk.end_line,
            chunk.page,
            chunk.tokens,
            chunk.symbol,
            chunk.heading_path,
            chunk.content_hash,
            chunk.content,
        )


def _segments(chunks: Sequence[NewChunk]) -> list[tuple[Postings, list[str]]]:
    """Postings and words of each keyword segment."""
    starts = range(0, len(chunks), MAX_CHUNKS)
    return [_segment(chunks[start : start + MAX_CHUNKS]) for start in starts]


def _segment(chunks: Iterable[NewChunk]) -> tuple[Postings, list[str]]:
    builder = SegmentBuilder()
    for _, group in groupby(chunks, key=itemgetter(1)):
        rows = list(group)
        document = rows[0][2]
        texts = [
            (chunk_id, chunk.content, chunk.symbol, chunk.heading_path)
            for chunk_id, _, _, chunk in rows
        ]
        builder.add_document(document.uri, document.title, texts)
    return builder.build(), builder.words()


def _in_the_way(uris: Sequence[str]) -> str:
    examples = ", ".join(uris[:_NAMED_IN_ERRORS])
    return f"{len(uris)} documents are stored already ({examples}): see again what is missing"
