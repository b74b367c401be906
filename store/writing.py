"""The one write transaction: fence → compare → rows → words → ledger, all or nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg

from store import chunks, collections, documents, embeddings, ledger
from store.chunks import Difference, NewChunk
from store.documents import Advanced, Revision, StoredDocument
from store.embeddings import Embedding
from store.generations import Generation
from store.keyword import writing as keyword
from store.keyword.writing import ChunkTerms
from store.threads import in_thread
from store.types import Applied, ChunkWrite, DocumentWrite

__all__ = ["write_batch"]

_THREAD_FROM_CHUNKS = 16
Added = Sequence[tuple[int, Revision, NewChunk]]
"""Document id, revision and chunk of each row to be added."""


@dataclass
class _Batch:
    """A batch inside its transaction, and what it found there."""

    connection: asyncpg.Connection
    generation: Generation
    agent: str
    models: Mapping[str, int]
    revisions: Mapping[str, Revision]
    anew: bool
    before: Mapping[str, StoredDocument] = field(default_factory=dict)
    won: Mapping[str, Advanced] = field(default_factory=dict)


async def write_batch(
    connection: asyncpg.Connection,
    generation: Generation,
    agent: str,
    models: Mapping[str, int],
    writes: Sequence[DocumentWrite],
    *,
    in_ledger: bool = True,
    anew: bool = False,
) -> list[Applied]:
    """Apply changes of one project and agent; what became of each, in order.

    Runs in the caller's transaction, which must be in the scope of generation and agent.

    Args:
        connection: the transaction's.
        generation: where to write.
        agent: '' or whose private documents these are.
        models: id of every model that a vector in ``writes`` is of.
        writes: the changes.
        in_ledger: enter them there, and tell those that are there from the rest.
        anew: write a document whose stored position is equal too, and every chunk of a document
            that is written, so that nothing which stood there remains.
    """
    batch = _Batch(connection, generation, agent, models, documents.newest(writes), anew)
    await _fence(batch)
    differences = await _compare(batch)
    await _write_rows(batch, differences)
    await _join_collections(batch)
    done = await _done(batch, writes) if in_ledger else set()
    results, new = _results(batch, writes, differences, done)
    if in_ledger and new:
        await ledger.record(connection, generation.project_id, new)
    return results


async def _fence(batch: _Batch) -> None:
    """Hold the documents, and find out which revisions are newer than what is stored."""
    at = batch.connection, batch.generation.id, batch.agent
    batch.before = await documents.lock(*at, list(batch.revisions))
    batch.won = await documents.advance(*at, batch.revisions, equal_too=batch.anew)


async def _compare(batch: _Batch) -> dict[str, Difference]:
    """What changes in each document that moves on, by uri."""
    existing = [one.document_id for one in batch.won.values() if not one.created]
    rows = await chunks.stored(batch.connection, batch.generation.id, existing) if existing else {}
    return {
        uri: _difference(batch, batch.revisions[uri], rows.get(one.document_id, []))
        for uri, one in batch.won.items()
    }


def _difference(
    batch: _Batch, revision: Revision, rows: Sequence[chunks.StoredChunk]
) -> Difference:
    after = [] if revision.deleted else [_new(batch, one) for one in revision.write.chunks]
    before = batch.before.get(revision.uri)
    if batch.anew or before is None or before.title != revision.write.title:
        # chunks are found by the words of the title too: under another one, or one that we
        # didn't see because the document was created meanwhile, all are indexed again
        return Difference(after, [], [row.chunk_id for row in rows], kept=0)
    return chunks.compare(rows, after)


def _new(batch: _Batch, write: ChunkWrite) -> NewChunk:
    return NewChunk(write, None if write.vector is None else batch.models[write.model])


async def _write_rows(batch: _Batch, differences: Mapping[str, Difference]) -> None:
    removed = [one for difference in differences.values() for one in difference.removed]
    moved = [one for difference in differences.values() for one in difference.moved]
    added = [
        (batch.won[uri].document_id, batch.revisions[uri], new)
        for uri, difference in differences.items()
        for new in difference.added
    ]
    if removed:
        await chunks.delete(batch.connection, batch.generation.id, removed)
    if moved:
        await chunks.move(batch.connection, batch.generation.id, moved)
    if added:
        await _add(batch, added)


async def _add(batch: _Batch, added: Added) -> None:
    generation = batch.generation
    rows = [(document_id, new) for document_id, _, new in added]
    chunk_ids = await chunks.insert(batch.connection, generation.id, batch.agent, rows)
    vectors = [
        Embedding(chunk_id, new.model_id, new.write.content_hash, new.write.vector)
        for chunk_id, (_, _, new) in zip(chunk_ids, added, strict=True)
        if new.model_id is not None and new.write.vector is not None
    ]
    if vectors:
        await embeddings.add(
            batch.connection, generation.project_id, generation.id, batch.agent, vectors
        )
    if len(added) < _THREAD_FROM_CHUNKS:
        words = _words(chunk_ids, added)
    else:
        words = await in_thread(batch.connection, _words, chunk_ids, added)
    await keyword.add(batch.connection, generation.id, words)


def _words(chunk_ids: Iterable[int], added: Added) -> list[ChunkTerms]:
    return [
        ChunkTerms.of(
            chunk_id,
            new.write.content,
            uri=revision.uri,
            title=revision.write.title,
            symbol=new.write.symbol,
            heading_path=new.write.heading_path,
        )
        for chunk_id, (_, revision, new) in zip(chunk_ids, added, strict=True)
    ]


async def _join_collections(batch: _Batch) -> None:
    members = {
        one.document_id: () if revision.deleted else revision.write.collections
        for uri, one in batch.won.items()
        if (revision := batch.revisions[uri]).write.collections or not one.created
    }
    if members:
        await collections.replace(batch.connection, batch.generation.id, batch.agent, members)


async def _done(batch: _Batch, writes: Sequence[DocumentWrite]) -> set[ledger.Place]:
    """Those that the ledger knows."""
    places = [(one.partition, one.position) for one in writes]
    return set(await ledger.applied(batch.connection, batch.generation.project_id, places))


def _results(
    batch: _Batch,
    writes: Sequence[DocumentWrite],
    differences: Mapping[str, Difference],
    done: set[ledger.Place],
) -> tuple[list[Applied], list[ledger.Entry]]:
    """What every change did, and the entries of those that were not done before."""
    by_write: defaultdict[int, list[Difference]] = defaultdict(list)
    for uri, difference in differences.items():
        by_write[id(batch.revisions[uri].write)].append(difference)
    results: list[Applied] = []
    entries: list[ledger.Entry] = []
    for write in writes:
        place = write.partition, write.position
        if place in done:
            results.append(Applied(write.event_id, "duplicate"))
            continue
        done.add(place)
        result = _applied(batch, write, by_write[id(write)])
        results.append(result)
        entries.append(_entry(write, result))
    return results, entries


def _applied(batch: _Batch, write: DocumentWrite, parts: Sequence[Difference]) -> Applied:
    kept = sum(part.kept for part in parts)
    stands = batch.revisions[write.uri].write is write
    if stands and write.uri not in batch.won:
        before = batch.before.get(write.uri)
        stands = before is not None and before.place == (write.position, write.partition)
        kept += len(write.chunks) if stands else 0
    return Applied(
        write.event_id,
        "indexed" if stands else "superseded",
        chunks_kept=kept,
        chunks_added=sum(len(part.added) for part in parts),
        chunks_removed=sum(len(part.removed) for part in parts),
    )


def _entry(write: DocumentWrite, result: Applied) -> ledger.Entry:
    place = write.partition, write.position
    stands = result.outcome == "indexed"
    return ledger.Entry(
        place,
        write.event_id,
        "indexed" if stands else "superseded",
        write.published_at,
        ledger.claimed_by(write.claimant),
    )
