"""Vectors against chunks, models and the cache."""

from __future__ import annotations

from collections import defaultdict

from processors.reconciling.case import Case, label
from processors.reconciling.findings import Drift, Subject
from store.inspecting_vectors import find_vector_flaws

__all__ = ["find_vector_drifts"]

_MEANINGS = {
    "missing": "their chunks lack the vector of their model",
    "foreign": "their chunks have a vector of another model or width than the recipe names",
    "changed": "their chunks have a vector that isn't the cached one",
}


async def find_vector_drifts(case: Case) -> list[Drift]:
    """Chunks that are found by no vector, or by a wrong one."""
    found: defaultdict[str, list[Subject]] = defaultdict(list)
    for one in await find_vector_flaws(case.connection, case.generation):
        key = one.agent, one.uri
        name = f"{label(key)} chunk {one.ordinal}"
        subject = Subject(name, (one.model, one.content_hash, one.chunk_id), key)
        found[one.flaw].append(subject)
    return [
        drift
        for flaw, meaning in _MEANINGS.items()
        for drift in case.drift(f"vector.{flaw}", found[flaw], meaning)
    ]
