"""Repair of an index from the log: of documents one by one, or of all by a replay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from events.names import DocumentKey, LogPosition
from events.streams.changes import LoggedChange
from processors.content import Contents, Texts
from processors.doctor.context import ProjectContext, contents_in_streams
from processors.doctor.findings import Finding, subjects_of
from processors.embedders.embedder import Urgency
from processors.replay.builder import read_batches
from processors.replay.fold import LastChange
from processors.replay.generations import drop
from processors.replay.project_log import ProjectLog
from processors.replay.replay import Replay
from processors.replay.scope import Choice
from runtime.errors import Unavailable
from store.inspection.corrections import forget_vectors, move_document, remove_document
from store.inspection.vectors import forget_index

__all__ = [
    "finish_drops",
    "reindex_documents",
    "replace_vector_indexes",
    "replay_project",
    "request_vectors",
]


async def reindex_documents(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Index each document once, whatever was found; return why some can't be indexed.

    The fence decides: nothing is written if a worker has applied a newer change since.

    Raises:
        Unavailable: a server is down; what was written stays. If a model is down, the vectors are
            requested from the embedders instead.
        ConfigurationError: a model has no key, for example.
    """
    unknown = _stored_positions(findings, "document.unknown")
    for key, stored in unknown.items():
        await remove_document(context.tools.database, context.generation, key, stored)
    keys = {subject.document for subject in subjects_of(findings) if subject.document is not None}
    fold = context.log.fold
    wanted = sorted(keys - unknown.keys())
    failures = [f"{context.label(key)}: the log lacks it" for key in wanted if key not in fold]
    newer = _stored_positions(findings, "document.newer")
    changed = _changed_vectors(findings)
    log = ProjectLog.of(context.project, context.tools)
    changes = log.last_changes(fold, fold.rows_of(key for key in wanted if key in fold))
    async for batch in read_batches(changes):
        failures += await _index(context, batch, newer, changed)
    return failures


def _stored_positions(findings: Sequence[Finding], name: str) -> dict[DocumentKey, LogPosition]:
    """Log positions that the documents of the findings of one name had in the index."""
    stored_positions: dict[DocumentKey, LogPosition] = {}
    for subject in subjects_of(finding for finding in findings if finding.name == name):
        if subject.document is not None:
            _, stored_positions[subject.document] = subject.key
    return stored_positions


def _changed_vectors(findings: Sequence[Finding]) -> Mapping[DocumentKey, set[tuple[str, bytes]]]:
    """Models and content hashes of texts with two different vectors, in the index and the cache.

    They are by document. It is unknown which of the two is wrong, so both must be made again.
    """
    changed: defaultdict[DocumentKey, set[tuple[str, bytes]]] = defaultdict(set)
    for subject in subjects_of(each for each in findings if each.name == "vector.changed"):
        model, content_hash, _ = subject.key
        if subject.document is not None:
            changed[subject.document].add((model, content_hash))
    return changed


async def _index(
    context: ProjectContext,
    batch: Sequence[LastChange],
    newer: dict[DocumentKey, LogPosition],
    changed: Mapping[DocumentKey, set[tuple[str, bytes]]],
) -> list[str]:
    tools, generation = context.tools, context.generation
    changes = [last.alone() for last in batch]
    texts = await _texts(context, changes)
    prepared = await tools.preparer(texts.fetch).prepare(changes, generation, Urgency.BULK)
    writes = [document.write for document in prepared.documents]
    keys = [DocumentKey(write.agent or "", write.uri) for write in writes]
    await _forget_vectors(context, set().union(*(changed.get(key, ()) for key in keys)))
    for key, write in zip(keys, writes, strict=True):
        if key in newer:
            # the fence would refuse to write a lower position than the stored one
            await move_document(tools.database, generation, key, newer[key], write)
    await tools.store.rebuild(generation, writes, force=True)
    await _embed(context, {write.log_position for write in writes})
    return [f"{failure.change.event.data.uri}: {failure.error}" for failure in prepared.failures]


async def _forget_vectors(context: ProjectContext, changed: set[tuple[str, bytes]]) -> None:
    """Remove the cached vectors of ``changed`` texts before a write takes them from the cache."""
    by_model: defaultdict[str, set[bytes]] = defaultdict(set)
    for model, content_hash in changed:
        by_model[model].add(content_hash)
    for model, hashes in by_model.items():
        await forget_vectors(context.tools.database, context.generation, model, hashes)


async def _texts(context: ProjectContext, changes: Sequence[LoggedChange]) -> Texts:
    """Read contents from the archive and Postgres, or else from the streams."""
    texts = await Contents(context.project, context.tools.archive).of(changes)
    references = (change.event.data.content_ref for change in changes)
    absent = {reference.sha256 for reference in references if reference} - texts.by_hash.keys()
    return replace(texts, by_hash={**texts.by_hash, **await contents_in_streams(context, absent)})


async def _embed(context: ProjectContext, log_positions: Collection[LogPosition]) -> None:
    tools, project, generation = context.tools, context.project, context.generation
    try:
        await tools.vector_stage().run_all(project, generation.id, log_positions)
    except Unavailable:
        await tools.request_vectors(project, generation, log_positions)


async def request_vectors(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Request pending vectors that are not in any request."""
    log_positions = {subject.key for subject in subjects_of(findings)}
    await context.tools.request_vectors(context.project, context.generation, log_positions)
    return []


async def replace_vector_indexes(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Replace unusable vector indexes, if the generation still needs them."""
    tools, generation = context.tools, context.generation
    for subject in subjects_of(findings):
        await forget_index(tools.database, generation, str(subject.key))
    await tools.indexes.refresh(generation.project_id, generation.id)
    return []


async def finish_drops(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Finish dropping partly dropped generations."""
    for subject in subjects_of(findings):
        await drop(context.tools, subject.key, lambda _rows: None)
    return []


async def replay_project(context: ProjectContext, _: Sequence[Finding]) -> list[str]:
    """Build the index again beside the live one, by the same recipe, and switch to it."""
    replay = Replay(
        context.tools,
        context.project,
        Choice(keep_strategies=True),
        None,
        lambda _step, _done, _total: None,
    )
    await replay.run()
    return []
