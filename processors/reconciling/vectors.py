"""Check of vectors against chunks, models, the cache, and the requests for pending ones."""

from __future__ import annotations

from collections import defaultdict

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Severity, Subject
from processors.reconciling.stream_reading import INDEXER
from store import pending
from store.inspecting_vectors import find_vector_flaws

__all__ = ["find_vector_drifts"]

_MEANINGS = {
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
        key = finding.agent, finding.uri
        name = f"{case.label(key)} chunk {finding.ordinal}"
        subject = Subject(name, (finding.model, finding.content_hash, finding.chunk_id), key)
        subjects[finding.flaw].append(subject)
    return [
        drift
        for flaw, meaning in _MEANINGS.items()
        for drift in case.drift(f"vector.{flaw}", subjects[flaw], meaning)
    ]


async def _unrequested(case: Case) -> list[Drift]:
    """Find documents whose vectors are not requested, and whose change no indexer is handling."""
    streams = case.evidence.streams
    indexed = case.evidence.handled(INDEXER)
    coming = {entry.change.order for entry in case.evidence.entries} - indexed
    coming |= streams.requested(case.project, case.generation.id)
    subjects = [
        Subject(case.label(key), place, key)
        for document in await pending.documents(case.connection, case.generation)
        if (place := (document.position, document.partition)) not in coming
        for key in [(document.agent, document.uri)]
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
        cure=_REMEDY.format(project=case.project),
        severity=Severity.NOTE,
    )


def _refused_subject(case: Case, chunk: pending.RefusedChunk) -> Subject:
    key = chunk.agent, chunk.uri
    name = f"{case.label(key)} chunk {chunk.ordinal}"
    return Subject(f"{name}: {chunk.model}: {chunk.reason}", (chunk.model, chunk.ordinal), key)
