"""Comparison of the stored documents with the fold of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from events.names import DocumentKey, LogPosition
from processors.doctor.context import ProjectContext
from processors.doctor.findings import Finding, Severity, Subject
from processors.doctor.stream_snapshot import INDEXER
from processors.replay.fold import FoldedDocument
from store.documents import pending
from store.documents.digests import StoredDigest
from store.documents.ledger import outcomes_of
from store.inspection.postings import chunk_owners, survey_postings
from store.inspection.vectors import index_findings, vector_findings

__all__ = [
    "check_documents",
    "check_postings",
    "check_rows",
    "check_vector_indexes",
    "check_vectors",
]

_DOCUMENT_FINDINGS = {
    "document.missing": "the log has them, the index does not",
    "document.older": "the index has an older version than the log",
    "document.not_deleted": "the log deleted them, the index has them",
    "document.deleted": "the log has them, the index marks them as deleted",
    "document.content": "the index has other content than the log",
    "document.source": "the index has them under another source than the log",
    "document.newer": "the index has them at a log position where the log has no change of them",
    "document.unknown": "the index has them, the log never had them",
    "document.unlogged": "the index has a version that the log has lost",
}
_BEHIND = frozenset({"document.missing", "document.older"})
_AHEAD = frozenset({"document.newer", "document.unknown", "document.unlogged"})
_REPUBLISH = "publish these documents again (`headrace sync`), or restore the archive"


async def check_documents(context: ProjectContext) -> list[Finding]:
    """Find documents that differ from the log; in-flight changes do not count."""
    differing = list(_differing(context))
    log_positions = {log_position for _, _, log_position in differing}
    project_id = context.generation.project_id
    confirm = _Confirmation(
        context, await outcomes_of(context.connection, project_id, log_positions), log_positions
    )
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for suspected, key, log_position in differing:
        name = confirm(suspected, log_position)
        if name is not None:
            stored = context.index.differing.get(key)
            values = log_position, stored and stored.log_position
            subjects[name].append(Subject(context.label(key), values, key))
    return [
        finding
        for name, meaning in _DOCUMENT_FINDINGS.items()
        for finding in context.findings(
            name, subjects[name], meaning, remedy=_REPUBLISH if name == "document.unlogged" else ""
        )
    ]


def _differing(context: ProjectContext) -> Iterator[tuple[str, DocumentKey, LogPosition]]:
    """Yield the name of the finding, the document, and the log position of the change concerned."""
    fold = context.log.fold
    for absent in context.index.absent():
        if not (absent.deleted and absent.rank[0] < context.tombstones_below):
            yield "document.missing", absent.key, absent.log_position
    for key, stored in context.index.differing.items():
        last = fold.find(key)
        name = "document.unknown" if last is None else _compare(last, stored)
        if name is not None:
            is_behind = last is not None and name not in _AHEAD
            yield name, key, last.log_position if last and is_behind else stored.log_position


def _compare(last: FoldedDocument, stored: StoredDigest) -> str | None:
    if stored.log_position != last.log_position:
        return "document.older" if stored.rank < last.rank else "document.newer"
    if stored.deleted != last.deleted:
        return "document.not_deleted" if last.deleted else "document.deleted"
    if stored.content_hash != last.content_hash:
        return "document.content"
    return None if stored.origin == last.origin else "document.source"


class _Confirmation:
    """Distinction between findings and in-flight changes."""

    def __init__(
        self,
        context: ProjectContext,
        outcomes: Mapping[LogPosition, str],
        log_positions: Collection[LogPosition],
    ) -> None:
        log = context.log
        self._began = log.streams.began
        self._in_streams = {entry.change.log_position for entry in log.entries}
        self._handled = log.handled(INDEXER)
        self._outcomes = outcomes
        self._logged = {at.position for at in log_positions}.intersection(log.positions)
        self._damaged = bool(log.damaged)

    def __call__(self, name: str, log_position: LogPosition) -> str | None:
        """Final name of the finding. Returns None if it may be an in-flight change."""
        if name in _BEHIND:
            return name if self._is_done(log_position) else None
        return self._ahead(name, log_position) if name in _AHEAD else name

    def _is_done(self, log_position: LogPosition) -> bool:
        if log_position in self._outcomes:
            return self._outcomes[log_position] != "rejected"
        if log_position in self._in_streams:
            return log_position in self._handled
        return log_position.position < self._began

    def _ahead(self, name: str, log_position: LogPosition) -> str | None:
        """Name the finding for a document that is ahead of the log.

        The log has lost a change if the ledger has an outcome at its position.
        """
        if log_position.position >= self._began:
            return None
        if log_position.position in self._logged:
            return name
        if log_position in self._outcomes or self._damaged:
            return "document.unlogged"
        return name


async def check_rows(context: ProjectContext) -> list[Finding]:
    """Find documents with a missing chunk, a changed row, or other collections than written."""
    changed = [
        Subject(context.label(key), stored.digest, key)
        for key, stored in context.index.differing.items()
        if stored.recorded is not None and stored.recorded != stored.digest
    ]
    undigested = [
        Subject(context.label(key), None, key)
        for key, stored in context.index.differing.items()
        if stored.recorded is None
    ]
    return [
        *context.findings("document.rows", changed, "their rows differ from what was written"),
        *context.findings(
            "document.undigested",
            undigested,
            "written by a version without digests, so their rows can't be verified",
            remedy=f"headrace replay --project {context.project}",
            severity=Severity.NOTE,
        ),
    ]


_VECTOR_FINDINGS = {
    "missing": "their chunks lack the vector of their model, and none is pending",
    "foreign": "their chunks have a vector of another model or width than the recipe names",
    "changed": "their chunks have a vector that differs from the cached one",
}


_REMEDY = (
    "change the text of these documents, or replay with another model "
    "(`headrace replay --project {project} --model NAME`)"
)


async def check_vectors(context: ProjectContext) -> list[Finding]:
    """Find missing and wrong vectors, pending ones without a request, and refused texts (note)."""
    return [*await _wrong(context), *await _unrequested(context), *await _refused(context)]


async def _wrong(context: ProjectContext) -> list[Finding]:
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for vector in await vector_findings(context.connection, context.generation):
        key = DocumentKey(vector.agent, vector.uri)
        label = f"{context.label(key)} chunk {vector.ordinal}"
        values = vector.model, vector.content_hash, vector.chunk_id
        subjects[vector.kind].append(Subject(label, values, key))
    return [
        finding
        for kind, meaning in _VECTOR_FINDINGS.items()
        for finding in context.findings(f"vector.{kind}", subjects[kind], meaning)
    ]


async def _unrequested(context: ProjectContext) -> list[Finding]:
    """Find documents whose vectors are not requested, and whose change no indexer is handling."""
    streams = context.log.streams
    indexed = context.log.handled(INDEXER)
    coming = {entry.change.log_position for entry in context.log.entries} - indexed
    coming |= streams.requested(context.project, context.generation.id)
    subjects = [
        Subject(context.label(key), log_position, key)
        for document in await pending.documents(context.connection, context.generation)
        if (log_position := LogPosition(document.position, document.partition)) not in coming
        for key in [DocumentKey(document.agent, document.uri)]
    ]
    return context.findings(
        "vector.unrequested",
        subjects,
        "their chunks wait for vectors that are not requested from any embedder",
    )


async def _refused(context: ProjectContext) -> list[Finding]:
    chunks = await pending.refused(context.connection, context.generation.id)
    subjects = [_refused_subject(context, chunk) for chunk in chunks]
    return context.findings(
        "vector.refused",
        subjects,
        "their chunks are found by keyword only: the model refuses the text",
        remedy=_REMEDY.format(project=context.project),
        severity=Severity.NOTE,
    )


def _refused_subject(context: ProjectContext, chunk: pending.RefusedChunk) -> Subject:
    key = DocumentKey(chunk.agent, chunk.uri)
    name = f"{context.label(key)} chunk {chunk.ordinal}"
    return Subject(f"{name}: {chunk.model}: {chunk.reason}", (chunk.model, chunk.ordinal), key)


async def check_postings(context: ProjectContext) -> list[Finding]:
    """Find chunks without postings, and damaged or duplicate segments."""
    survey = await survey_postings(context.connection, context.generation.id)
    owners = await chunk_owners(context.connection, context.generation.id, survey.missing)
    missing = [
        Subject(f"{context.label(key)} chunk {owner.ordinal}", owner.chunk_id, key)
        for owner in owners
        for key in [DocumentKey(owner.agent, owner.uri)]
    ]
    broken = [
        Subject(f"segment {segment}: {why}", segment) for segment, why in survey.broken.items()
    ]
    segments = {
        "postings.broken": (broken, "segments differ from what was written"),
        "postings.doubled": (_segments(survey.doubled), "segments have chunks of other segments"),
        "postings.orphaned": (_segments(survey.orphans), "postings belong to missing segments"),
    }
    replay = f"headrace replay --project {context.project}"
    return [
        *context.findings("postings.missing", missing, "keyword search can't find these chunks"),
        *(
            finding
            for name, (subjects, meaning) in segments.items()
            for finding in context.findings(name, subjects, meaning, remedy=replay)
        ),
    ]


def _segments(ids: Iterable[int]) -> list[Subject]:
    return [Subject(f"segment {segment}", segment) for segment in sorted(ids)]


_VECTOR_INDEX_FINDINGS = {
    "missing": "queries need a vector index that does not exist",
    "invalid": "a vector index was never finished",
    "bounds": "a vector index covers other chunks than queries expect",
    "unused": "a vector index is updated by writers, but not used by queries",
}


async def check_vector_indexes(context: ProjectContext) -> list[Finding]:
    """Find defects of the generation's indexes, unless one is being built."""
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for index in await index_findings(context.tools.database, context.generation):
        subjects[index.kind].append(Subject(index.name, index.name))
    return [
        finding
        for kind, meaning in _VECTOR_INDEX_FINDINGS.items()
        for finding in context.findings(f"vector_index.{kind}", subjects[kind], meaning)
    ]
