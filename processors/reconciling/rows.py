"""Comparison of each document's rows with the digest recorded when it was written."""

from __future__ import annotations

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Severity, Subject

__all__ = ["find_row_drifts"]


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
            cure=f"headrace replay --project {case.project}",
            severity=Severity.NOTE,
        ),
    ]
