"""Check of HNSW indexes: valid, covering the chunks that queries expect, and in use."""

from __future__ import annotations

from collections import defaultdict

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from store.inspecting_indexes import find_index_flaws

__all__ = ["find_vector_index_drifts"]

_MEANINGS = {
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
        for flaw, meaning in _MEANINGS.items()
        for drift in case.drift(f"vector_index.{flaw}", subjects[flaw], meaning)
    ]
