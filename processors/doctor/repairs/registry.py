"""Repairs of all drifts, in their order: first the log, then the index made from it.

Each repair uses the locks or the fence that writers use, so that it can't cause damage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from processors.doctor.context import Case
from processors.doctor.findings import Drift, Subject
from processors.doctor.repairs.archive import rearchive, see_to_orphans
from processors.doctor.repairs.documents import DOCUMENT_DRIFTS, repair_documents
from processors.doctor.repairs.index import drop_rest, index_again, post_again, request_again
from processors.doctor.repairs.streams import acknowledge, drop_letters, enter_outcomes

__all__ = ["repair_drifts"]

Repair = Callable[[Case, Sequence[Subject]], Awaitable[list[str]]]
"""Repairs the subjects of drifts; returns what it can't repair, and why."""

OF_THE_LOG: Mapping[Repair, tuple[str, ...]] = {
    rearchive: ("archive.unarchived", "archive.damaged", "archive.missing"),
    see_to_orphans: ("archive.orphans",),
}
OF_THE_INDEX: Mapping[Repair, tuple[str, ...]] = {
    drop_rest: ("generation.dropping",),
    post_again: (
        "postings.missing",
        "postings.broken",
        "postings.doubled",
        "postings.orphaned",
    ),
    request_again: ("vector.unrequested",),
    index_again: (
        "vector_index.missing",
        "vector_index.invalid",
        "vector_index.bounds",
        "vector_index.unused",
    ),
    enter_outcomes: ("ledger.missing",),
    acknowledge: ("pending.done",),
    drop_letters: ("dead_letter.done",),
}


async def repair_drifts(case: Case, drifts: Sequence[Drift]) -> list[str]:
    """Repair everything possible; return what can't be repaired, and why.

    Raises:
        Unavailable: a server, a model or a lock is unavailable; completed repairs stay.
    """
    return [
        *await _repair(OF_THE_LOG, case, drifts),
        *await repair_documents(case, drifts),
        *await _repair(OF_THE_INDEX, case, drifts),
        *(
            f"{drift.name}: {drift.remedy}"
            for drift in drifts
            if drift.name not in _is_repairable()
        ),
    ]


async def _repair(
    mends: Mapping[Repair, tuple[str, ...]], case: Case, drifts: Sequence[Drift]
) -> list[str]:
    failures: list[str] = []
    for work, names in mends.items():
        subjects = [
            subject for drift in drifts if drift.name in names for subject in drift.subjects
        ]
        if subjects:
            failures += await work(case, subjects)
    return failures


def _is_repairable() -> set[str]:
    named = (*OF_THE_LOG.values(), *OF_THE_INDEX.values())
    return {*DOCUMENT_DRIFTS, *(name for names in named for name in names)}
