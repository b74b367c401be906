"""Comparison of the stored documents with the fold of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from events.positions import DocumentKey, LogPosition
from processors.doctor.context import Case
from processors.doctor.findings import Drift, Severity, Subject
from processors.doctor.stream_snapshot import INDEXER
from processors.replay.fold import LastChange
from store.documents import pending
from store.documents.digests import StoredDigest
from store.documents.ledger import outcomes_of
from store.inspection.postings import chunk_owners, survey_postings
from store.inspection.vectors import find_index_flaws, find_vector_flaws

__all__ = [
    "AHEAD",
    "BEHIND",
    "MEANINGS",
    "find_document_drifts",
    "find_posting_drifts",
    "find_row_drifts",
    "find_vector_drifts",
    "find_vector_index_drifts",
    "order_of",
]

MEANINGS = {
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
BEHIND = frozenset({"document.missing", "document.older"})
AHEAD = frozenset({"document.newer", "document.unknown", "document.unlogged"})
_REPUBLISH = "publish these documents again (`headrace sync`), or restore the archive"


async def find_document_drifts(case: Case) -> list[Drift]:
    """Find documents that differ from the log; in-flight changes do not count."""
    suspects = list(_suspects(case))
    log_positions = {order for _, key, order in suspects}
    outcomes = await outcomes_of(case.connection, case.generation.project_id, log_positions)
    decide = _Judge(case, outcomes)
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for name, key, order in suspects:
        decision = decide(name, order)
        if decision is not None:
            stored = case.documents.get(key)
            subjects[decision].append(
                Subject(case.label(key), (order, stored and order_of(stored)), key)
            )
    return [
        drift
        for name, meaning in MEANINGS.items()
        for drift in case.drift(
            name, subjects[name], meaning, remedy=_REPUBLISH if name == "document.unlogged" else ""
        )
    ]


def order_of(stored: StoredDigest) -> LogPosition:
    """Log position of a stored document."""
    return LogPosition(stored.position, stored.partition)


def _suspects(case: Case) -> Iterator[tuple[str, DocumentKey, LogPosition]]:
    """Yield the name of the drift, the document, and the log position of the change concerned."""
    last = case.evidence.fold.last
    for key, change in last.items():
        name = _compare(change, case.documents.get(key))
        if name is not None:
            stored = case.documents.get(key)
            ahead = name in AHEAD and stored is not None
            yield name, key, order_of(stored) if ahead and stored else change.log_position
    for key, stored in case.documents.items():
        if key not in last:
            yield "document.unknown", key, order_of(stored)


def _compare(last: LastChange, stored: StoredDigest | None) -> str | None:
    if stored is None:
        return "document.missing"
    if order_of(stored) != last.log_position:
        return "document.older" if stored.rank < last.rank else "document.newer"
    if stored.deleted != last.deleted:
        return "document.not_deleted" if last.deleted else "document.deleted"
    if stored.content_hash != last.content_hash:
        return "document.content"
    return None if stored.origin == last.change.event.data.origin else "document.source"


class _Judge:
    """Distinction between drifts and in-flight changes."""

    def __init__(self, case: Case, outcomes: dict[LogPosition, str]) -> None:
        evidence = case.evidence
        self._began = evidence.streams.began
        self._in_streams = {entry.change.log_position for entry in evidence.entries}
        self._handled = evidence.handled(INDEXER)
        self._outcomes = outcomes
        self._positions = frozenset(evidence.positions)
        self._damaged = bool(evidence.damaged)

    def __call__(self, name: str, order: LogPosition) -> str | None:
        """Final name of the drift. Returns None if it may be an in-flight change."""
        if name in BEHIND:
            return name if self._is_done(order) else None
        return self._ahead(name, order) if name in AHEAD else name

    def _is_done(self, order: LogPosition) -> bool:
        if order in self._outcomes:
            return self._outcomes[order] != "rejected"
        if order in self._in_streams:
            return order in self._handled
        return order[0] < self._began

    def _ahead(self, name: str, order: LogPosition) -> str | None:
        """Name a drift of a document that is ahead of the log.

        The log has lost a change if the ledger has an outcome at its position.
        """
        if order[0] >= self._began:
            return None
        if order[0] in self._positions:
            return name
        if order in self._outcomes or self._damaged:
            return "document.unlogged"
        return name


async def find_row_drifts(case: Case) -> list[Drift]:
    """Find documents with a missing chunk, a changed row, or other collections than written."""
    changed = [
        Subject(case.label(key), stored.digest, key)
        for key, stored in case.documents.items()
        if stored.recorded is not None and stored.recorded != stored.digest
    ]
    undigested = [
        Subject(case.label(key), None, key)
        for key, stored in case.documents.items()
        if stored.recorded is None
    ]
    return [
        *case.drift("document.rows", changed, "their rows differ from what was written"),
        *case.drift(
            "document.undigested",
            undigested,
            "written by a version without digests, so their rows can't be verified",
            remedy=f"headrace replay --project {case.project}",
            severity=Severity.NOTE,
        ),
    ]


_VECTOR_FLAWS = {
    "missing": "their chunks lack the vector of their model, and none is pending",
    "foreign": "their chunks have a vector of another model or width than the recipe names",
    "changed": "their chunks have a vector that differs from the cached one",
}


_REMEDY = (
    "change the text of these documents, or replay with another model "
    "(`headrace replay --project {project} --model NAME`)"
)


async def find_vector_drifts(case: Case) -> list[Drift]:
    """Find missing and wrong vectors, pending ones without a request, and refused texts (note)."""
    return [*await _flawed(case), *await _unrequested(case), *await _refused(case)]


async def _flawed(case: Case) -> list[Drift]:
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for finding in await find_vector_flaws(case.connection, case.generation):
        key = DocumentKey(finding.agent, finding.uri)
        name = f"{case.label(key)} chunk {finding.ordinal}"
        subject = Subject(name, (finding.model, finding.content_hash, finding.chunk_id), key)
        subjects[finding.flaw].append(subject)
    return [
        drift
        for flaw, meaning in _VECTOR_FLAWS.items()
        for drift in case.drift(f"vector.{flaw}", subjects[flaw], meaning)
    ]


async def _unrequested(case: Case) -> list[Drift]:
    """Find documents whose vectors are not requested, and whose change no indexer is handling."""
    streams = case.evidence.streams
    indexed = case.evidence.handled(INDEXER)
    coming = {entry.change.log_position for entry in case.evidence.entries} - indexed
    coming |= streams.requested(case.project, case.generation.id)
    subjects = [
        Subject(case.label(key), log_position, key)
        for document in await pending.documents(case.connection, case.generation)
        if (log_position := LogPosition(document.position, document.partition)) not in coming
        for key in [DocumentKey(document.agent, document.uri)]
    ]
    return case.drift(
        "vector.unrequested",
        subjects,
        "their chunks wait for vectors that are not requested from any embedder",
    )


async def _refused(case: Case) -> list[Drift]:
    chunks = await pending.refused(case.connection, case.generation.id)
    subjects = [_refused_subject(case, chunk) for chunk in chunks]
    return case.drift(
        "vector.refused",
        subjects,
        "their chunks are found by keyword only: the model refuses the text",
        remedy=_REMEDY.format(project=case.project),
        severity=Severity.NOTE,
    )


def _refused_subject(case: Case, chunk: pending.RefusedChunk) -> Subject:
    key = DocumentKey(chunk.agent, chunk.uri)
    name = f"{case.label(key)} chunk {chunk.ordinal}"
    return Subject(f"{name}: {chunk.model}: {chunk.reason}", (chunk.model, chunk.ordinal), key)


async def find_posting_drifts(case: Case) -> list[Drift]:
    """Find chunks without postings, and damaged or duplicate segments."""
    survey = await survey_postings(case.connection, case.generation.id)
    owners = await chunk_owners(case.connection, case.generation.id, survey.missing)
    missing = [
        Subject(
            f"{case.label(DocumentKey(owner.agent, owner.uri))} chunk {owner.ordinal}",
            owner.chunk_id,
        )
        for owner in owners
    ]
    broken = [
        Subject(f"segment {segment}: {why}", segment) for segment, why in survey.broken.items()
    ]
    return [
        *case.drift("postings.missing", missing, "keyword search can't find these chunks"),
        *case.drift("postings.broken", broken, "segments differ from what was written"),
        *case.drift(
            "postings.doubled", _segments(survey.doubled), "segments have chunks of other segments"
        ),
        *case.drift(
            "postings.orphaned", _segments(survey.orphans), "postings belong to missing segments"
        ),
    ]


def _segments(ids: Iterable[int]) -> list[Subject]:
    return [Subject(f"segment {segment}", segment) for segment in sorted(ids)]


_INDEX_FLAWS = {
    "missing": "queries need a vector index that does not exist",
    "invalid": "a vector index was never finished",
    "bounds": "a vector index covers other chunks than queries expect",
    "unused": "a vector index is updated by writers, but not used by queries",
}


async def find_vector_index_drifts(case: Case) -> list[Drift]:
    """Find defects of the generation's indexes, unless one is being built."""
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for finding in await find_index_flaws(case.desk.tools.database, case.generation):
        subjects[finding.flaw].append(Subject(finding.name, finding.name))
    return [
        drift
        for flaw, meaning in _INDEX_FLAWS.items()
        for drift in case.drift(f"vector_index.{flaw}", subjects[flaw], meaning)
    ]
