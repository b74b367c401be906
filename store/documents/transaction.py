"""The atomic write transaction: fence → compare → rows → words → vectors → ledger."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import asyncpg

from events.models import Problem
from events.names import LogPosition
from runtime.errors import PreconditionFailed
from store.documents import chunks, collections, contexts, fence, ledger, pending
from store.documents.chunks import Difference, Embedding, NewChunk
from store.documents.fence import (
    Advanced,
    LateChanges,
    Revision,
    Ruling,
    StoredDocument,
    check_unseen,
    rule,
)
from store.documents.pending import FormerlyMissing, Missing
from store.generations.catalog import Generation
from store.postgres.connection import result_of
from store.search.keyword import writer as keyword
from store.search.keyword.writer import ChunkText, segment_row, segments_of
from store.types import Applied, ChunkWrite, DocumentWrite

__all__ = ["uris_of", "write_batch"]

Row = tuple[int, Revision, NewChunk]
"""A chunk's row: its document's id, the document's revision, and the chunk."""


_FEW_CHUNKS = 8


@dataclass
class _Batch:
    """A batch inside its transaction, and the state that it read there."""

    connection: asyncpg.Connection
    generation: Generation
    agent: str
    models: Mapping[str, int]
    overwrite: bool
    chunk_ids: Sequence[int]
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    before: Mapping[str, StoredDocument] = field(default_factory=dict)
    won: Mapping[str, Advanced] = field(default_factory=dict)
    formerly_missing: Mapping[int, FormerlyMissing] = field(default_factory=dict)
    first: Mapping[str, int] = field(default_factory=dict)
    looked_up: Collection[int] = ()
    """Ids of the new chunks whose texts were looked up in the cache of vectors."""
    with_vector: AbstractSet[int] = frozenset()
    """Those of them that got a vector."""
    pending: Mapping[str, int] = field(default_factory=dict)


async def write_batch(
    connection: asyncpg.Connection,
    generation: Generation,
    agent: str,
    models: Mapping[str, int],
    writes: Sequence[DocumentWrite],
    *,
    in_ledger: bool = True,
    overwrite: bool = False,
    may_be_late: bool = True,
    chunk_ids: Sequence[int] = (),
    before: Mapping[str, StoredDocument] | None = None,
) -> list[Applied]:
    """Apply changes of one project and agent; return the results in the order of ``writes``.

    Runs in the caller's transaction, which must be in the scope of generation and agent.

    Args:
        connection: connection of the transaction.
        generation: generation to write to.
        agent: owner of these private documents, or '' for shared ones.
        models: ids of all models in ``writes``, by name.
        writes: the changes.
        in_ledger: record the changes in the ledger, and detect duplicates by it. Without it,
            conflicts between sources are not checked, because the log has decided them already.
        overwrite: also write documents whose stored position is equal, and write every chunk of a
            written document, so that none of its former rows remain.
        may_be_late: accept changes that are older than what is stored.
        chunk_ids: ids for new chunks, as many as ``writes`` have; without them, ids are taken.
        before: the stored documents of ``uris_of(writes)`` by uri, which the transaction has
            locked; without them, they are locked.

    Raises:
        LateChanges: changes are older than what is stored, and ``may_be_late`` is false.
        WriteConflict: another writer conflicted; the same transaction may succeed if repeated at
            once.
    """
    batch = _Batch(connection, generation, agent, models, overwrite, chunk_ids)
    batch.first = _first_positions(writes)
    if before is None:
        before = await fence.lock(connection, generation.id, agent, uris_of(writes))
    batch.before = before
    ruling = await _rule(batch, writes, may_be_late=may_be_late) if in_ledger else Ruling()
    allowed = [write for index, write in enumerate(writes) if index not in ruling.conflicts]
    batch.revisions = fence.newest(allowed)
    await _fence(batch)
    differences = await _compare(batch)
    added = await _write_rows(batch, differences)
    await _write_vectors(batch, differences, added)
    await _join_collections(batch)
    done = await _done(batch, [writes[index] for index in sorted(ruling.conflicts)])
    await _count_pending(batch)
    results, new = _results(batch, writes, ruling, differences, done)
    if not in_ledger or not new:
        return results
    recorded = await ledger.record(connection, generation.project_id, new)
    earlier = {entry.log_position for entry in new} - recorded
    return [
        Applied(write.event_id, "duplicate") if write.log_position in earlier else result
        for write, result in zip(writes, results, strict=True)
    ]


def uris_of(writes: Sequence[DocumentWrite]) -> list[str]:
    """Uris of all documents that changes concern, sorted."""
    return sorted({revision.uri for revision in fence.revisions_of(writes)})


def _first_positions(writes: Sequence[DocumentWrite]) -> dict[str, int]:
    """Lowest position in the batch by uri; an earlier change in it may never have been stored."""
    first: dict[str, int] = {}
    for write in writes:
        first[write.uri] = min(first.get(write.uri, write.position), write.position)
    return first


async def _rule(batch: _Batch, writes: Sequence[DocumentWrite], *, may_be_late: bool) -> Ruling:
    project_id = batch.generation.project_id
    ruling = await rule(batch.connection, project_id, writes, batch.before)
    if ruling.late and not may_be_late:
        raise LateChanges(frozenset(write.partition for write in ruling.late))
    return ruling


async def _fence(batch: _Batch) -> None:
    """Store the revisions that are newer than the stored ones; lock their missing vectors."""
    if not batch.revisions:
        return
    at = batch.connection, batch.generation.id, batch.agent
    batch.won = await fence.advance(*at, batch.revisions, equal_too=batch.overwrite)
    check_unseen(batch.before, batch.revisions, batch.won)
    former = [document.document_id for document in batch.won.values() if not document.created]
    if former:
        batch.formerly_missing = await pending.lock(batch.connection, batch.generation.id, former)


async def _compare(batch: _Batch) -> dict[str, Difference]:
    """Differences of the documents that were advanced, by uri."""
    existing = [document.document_id for document in batch.won.values() if not document.created]
    rows = await chunks.stored(batch.connection, batch.generation.id, existing) if existing else {}
    return {
        uri: _difference(batch, batch.revisions[uri], rows.get(document.document_id, []))
        for uri, document in batch.won.items()
    }


def _difference(
    batch: _Batch, revision: Revision, rows: Sequence[chunks.StoredChunk]
) -> Difference:
    after = [] if revision.deleted else [_new(batch, chunk) for chunk in revision.write.chunks]
    before = batch.before.get(revision.uri)
    if batch.overwrite or before is None or before.title != revision.write.title:
        # chunks are found by the words of the title too: if it changed, or was not read because
        # another writer has just created the document, all chunks are indexed again
        return Difference(after, [], [row.chunk_id for row in rows], kept=[])
    return chunks.compare(rows, after)


def _new(batch: _Batch, write: ChunkWrite) -> NewChunk:
    return NewChunk(write, batch.models[write.model] if write.model else None)


async def _write_rows(batch: _Batch, differences: Mapping[str, Difference]) -> list[int]:
    """Remove, move and add rows; return the ids of the added ones, in order of the differences."""
    removed = [row for difference in differences.values() for row in difference.removed]
    moved = [row for difference in differences.values() for row in difference.moved]
    added = [
        (batch.won[uri].document_id, batch.revisions[uri], new)
        for uri, difference in differences.items()
        for new in difference.added
    ]
    if removed:
        await chunks.delete(batch.connection, batch.generation.id, removed)
    if moved:
        await chunks.move(batch.connection, batch.generation.id, moved)
    return await _add(batch, added) if added else []


async def _add(batch: _Batch, added: Sequence[Row]) -> list[int]:
    """Insert chunks with their words.

    A few chunks are added in one statement, with the cached vectors of their texts. Of more, the
    words are computed while the server inserts the rows.
    """
    at = batch.connection, batch.generation.id
    chunk_ids = list(batch.chunk_ids[: len(added)])
    if not chunk_ids:
        chunk_ids = await chunks.take_ids(batch.connection, len(added))
    texts = [_text(chunk_id, row) for chunk_id, row in zip(chunk_ids, added, strict=True)]
    rows = [(document_id, new) for document_id, _, new in added]
    if len(rows) <= _FEW_CHUNKS and all(new.write.vector is None for _, new in rows):
        segments = [segment_row(segment) for segment in segments_of(texts)]
        batch.with_vector = await chunks.insert_searchable(
            batch.connection, batch.generation, batch.agent, chunk_ids, rows, segments
        )
        batch.looked_up = frozenset(chunk_ids)
        if batch.generation.recipe.context:
            await contexts.note(*at, batch.agent, chunk_ids, rows)
        return chunk_ids
    words = asyncio.create_task(asyncio.to_thread(segments_of, texts))
    try:
        await chunks.insert(*at, batch.agent, chunk_ids, rows)
        if batch.generation.recipe.context:
            await contexts.note(*at, batch.agent, chunk_ids, rows)
        await keyword.add(*at, await result_of(batch.connection, words))
    finally:
        words.cancel()
    return chunk_ids


def _text(chunk_id: int, row: Row) -> ChunkText:
    _, revision, new = row
    write = new.write
    return ChunkText(
        chunk_id,
        write.content,
        revision.uri,
        revision.write.title,
        write.symbol,
        write.heading_path,
        is_example=write.is_example,
        surroundings=write.surroundings,
    )


async def _write_vectors(
    batch: _Batch, differences: Mapping[str, Difference], added: Sequence[int]
) -> None:
    """Give chunks the given or cached vectors, and record the chunks that stay pending."""
    vectorless = _vectorless(batch, differences, added)
    given = [row for rows in vectorless.values() for row in rows if row[1].write.vector is not None]
    if given:
        await _add_given(batch, given)
    rest = [row for rows in vectorless.values() for row in rows if row[1].write.vector is None]
    unknown = [row for row in rest if row[0] not in batch.looked_up]
    complete = {chunk_id for chunk_id, _ in given} | batch.with_vector
    complete |= await _add_cached(batch, unknown)
    missing = {
        uri: [row for row in rows if row[0] not in complete] for uri, rows in vectorless.items()
    }
    batch.pending = {uri: len(rows) for uri, rows in missing.items() if rows}
    await pending.note(
        batch.connection,
        batch.generation.id,
        batch.agent,
        [_missing(batch, uri, rows) for uri, rows in missing.items() if rows],
        former=batch.formerly_missing,
    )


def _vectorless(
    batch: _Batch, differences: Mapping[str, Difference], added: Sequence[int]
) -> dict[str, list[tuple[int, NewChunk]]]:
    """Chunks that need a vector, by uri: new ones, and kept ones that are pending."""
    ids = iter(added)
    vectorless: dict[str, list[tuple[int, NewChunk]]] = {}
    for uri, difference in differences.items():
        former = batch.formerly_missing.get(batch.won[uri].document_id)
        rows = [(next(ids), new) for new in difference.added]
        if former is not None:
            rows += [row for row in difference.kept if row[0] in former.chunk_ids]
        vectorless[uri] = [row for row in rows if row[1].model_id is not None]
    return vectorless


async def _add_given(batch: _Batch, rows: Sequence[tuple[int, NewChunk]]) -> None:
    vectors = [
        Embedding(
            *(chunk_id, new.model_id, new.write.content_hash, new.write.vector),
            is_example=new.write.is_example,
        )
        for chunk_id, new in rows
        if new.model_id is not None and new.write.vector is not None
    ]
    generation = batch.generation
    await chunks.add(batch.connection, generation.project_id, generation.id, batch.agent, vectors)


async def _add_cached(batch: _Batch, rows: Sequence[tuple[int, NewChunk]]) -> set[int]:
    if not rows:
        return set()
    generation = batch.generation
    return await chunks.add_cached(
        batch.connection, generation.project_id, generation.id, [chunk_id for chunk_id, _ in rows]
    )


def _missing(batch: _Batch, uri: str, rows: Sequence[tuple[int, NewChunk]]) -> Missing:
    headers = {chunk_id: new.write.header for chunk_id, new in rows}
    model_id = rows[0][1].model_id
    assert model_id is not None
    document_id, log_position = batch.won[uri].document_id, batch.revisions[uri].write.log_position
    since = batch.first.get(uri, log_position.position)
    if document_id in batch.formerly_missing:
        since = min(since, batch.formerly_missing[document_id].since)
    return Missing(document_id, log_position, since, model_id, headers)


async def _count_pending(batch: _Batch) -> None:
    """Count pending chunks of documents already at their change, because a replay wrote them."""
    document_ids = {
        uri: batch.before[uri].document_id
        for uri, revision in batch.revisions.items()
        if uri not in batch.won
        and uri in batch.before
        and batch.before[uri].log_position == revision.write.log_position
    }
    if not document_ids:
        return
    at = batch.connection, batch.generation.id
    former = await pending.lock(*at, sorted(document_ids.values()))
    batch.pending = {
        **batch.pending,
        **{
            uri: len(former[document_id].chunk_ids)
            for uri, document_id in document_ids.items()
            if document_id in former
        },
    }


async def _join_collections(batch: _Batch) -> None:
    members = {
        document.document_id: () if revision.deleted else revision.write.collections
        for uri, document in batch.won.items()
        if (revision := batch.revisions[uri]).write.collections or not document.created
    }
    if members:
        await collections.replace(batch.connection, batch.generation.id, batch.agent, members)


async def _done(batch: _Batch, writes: Sequence[DocumentWrite]) -> set[LogPosition]:
    """Return the positions of changes that the ledger has as applied or superseded."""
    if not writes:
        return set()
    log_positions = [write.log_position for write in writes]
    return set(await ledger.applied(batch.connection, batch.generation.project_id, log_positions))


def _results(
    batch: _Batch,
    writes: Sequence[DocumentWrite],
    ruling: Ruling,
    differences: Mapping[str, Difference],
    done: set[LogPosition],
) -> tuple[list[Applied], list[ledger.Entry]]:
    """Result of every change, and the ledger entries of those that are not in ``done``.

    Each position counts once; a further change at it is a duplicate.
    """
    by_write: defaultdict[int, list[Difference]] = defaultdict(list)
    for uri, difference in differences.items():
        by_write[id(batch.revisions[uri].write)].append(difference)
    results: list[Applied] = []
    entries: list[ledger.Entry] = []
    for index, write in enumerate(writes):
        log_position = write.log_position
        if log_position in done:
            results.append(Applied(write.event_id, "duplicate"))
            continue
        if index in ruling.conflicts:
            conflict = ruling.conflicts[index]
            results.append(Applied(write.event_id, "rejected", conflict=conflict))
            if isinstance(conflict, PreconditionFailed):
                entries.append(_rejection(write, conflict))
            continue
        done.add(log_position)
        result = _applied(batch, write, by_write[id(write)])
        results.append(result)
        entries.append(_entry(write, result))
    return results, entries


def _applied(batch: _Batch, write: DocumentWrite, parts: Sequence[Difference]) -> Applied:
    kept = sum(len(part.kept) for part in parts)
    stands = batch.revisions[write.uri].write is write
    if stands and write.uri not in batch.won:
        before = batch.before.get(write.uri)
        stands = before is not None and before.log_position == write.log_position
        kept += len(write.chunks) if stands else 0
    return Applied(
        write.event_id,
        "indexed" if stands else "superseded",
        chunks_kept=kept,
        chunks_added=sum(len(part.added) for part in parts),
        chunks_removed=sum(len(part.removed) for part in parts),
        chunks_pending=batch.pending.get(write.uri, 0) if stands else 0,
        created=stands and write.change != "delete" and _is_created(batch, write.uri),
    )


def _is_created(batch: _Batch, uri: str) -> bool:
    """Return whether the batch stored a document that did not exist before, or was deleted."""
    if uri not in batch.won:
        return False
    before = batch.before.get(uri)
    return batch.won[uri].created if before is None else before.deleted


def _entry(write: DocumentWrite, result: Applied) -> ledger.Entry:
    log_position = write.log_position
    stands = result.outcome == "indexed"
    return ledger.Entry(
        log_position,
        write.event_id,
        "indexed" if stands else "superseded",
        write.published_at,
        _detail(write, result),
        write.batch,
        write.agent or "",
        write.uri,
    )


def _detail(write: DocumentWrite, result: Applied) -> dict[str, object] | None:
    claim = ledger.claimed_by(write.claimant)
    if write.warnings:
        claim = {"warnings": list(write.warnings), **(claim or {})}
    if write.batch is None:
        return claim
    measures: dict[str, object] = {
        "chunks_added": result.chunks_added,
        "tokens_embedded": write.tokens_embedded,
        "cost_usd": write.cost_usd,
    }
    return measures | (claim or {})


def _rejection(write: DocumentWrite, error: PreconditionFailed) -> ledger.Entry:
    problem = Problem(type=error.code, detail=str(error)[:4000])
    detail = problem.model_dump(mode="json")
    return ledger.Entry(
        write.log_position,
        write.event_id,
        "rejected",
        write.published_at,
        detail,
        write.batch,
        write.agent or "",
        write.uri,
    )
