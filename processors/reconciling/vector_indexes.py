"""HNSW indexes: valid, of the part of the generation that questions take them for, and in use."""

from __future__ import annotations

from collections import defaultdict

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from store.inspecting_indexes import find_index_flaws

__all__ = ["find_vector_index_drifts"]

_MEANINGS = {
    "missing": "questions rely on a vector index that isn't there",
    "invalid": "a vector index was never finished",
    "bounds": "a vector index covers other chunks than questions take it for",
    "unused": "a vector index is kept up to date that no question uses",
}


async def find_vector_index_drifts(case: Case) -> list[Drift]:
    """What is wrong with the indexes of the generation, unless one is being built."""
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for finding in await find_index_flaws(case.desk.tools.database, case.generation):
        subjects[finding.flaw].append(Subject(finding.name, finding.name))
    return [
        drift
        for flaw, meaning in _MEANINGS.items()
        for drift in case.drift(f"vector_index.{flaw}", subjects[flaw], meaning)
    ]
