"""Remedies of all findings, in their order: first the log, then the index made from it.

Each uses the locks or the fence that writers use, so that it can't cause damage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from processors.doctor.context import ProjectContext
from processors.doctor.findings import Finding
from processors.doctor.repairs.archive import rearchive, settle_orphans
from processors.doctor.repairs.index import (
    finish_drops,
    reindex_documents,
    replace_vector_indexes,
    replay_project,
    request_vectors,
)
from processors.doctor.repairs.streams import acknowledge, drop_letters, enter_outcomes
from runtime.errors import HeadraceError

__all__ = ["repair_findings"]

Repair = Callable[[ProjectContext, Sequence[Finding]], Awaitable[list[str]]]
"""Repairs findings; returns the reasons of what it can't repair."""

REPAIRS: Mapping[Repair, Collection[str]] = {
    rearchive: {"archive.unarchived", "archive.damaged", "archive.missing"},
    settle_orphans: {"archive.orphans"},
    reindex_documents: {
        "document.missing",
        "document.older",
        "document.newer",
        "document.unknown",
        "document.not_deleted",
        "document.deleted",
        "document.content",
        "document.source",
        "document.rows",
        "vector.missing",
        "vector.foreign",
        "vector.changed",
        "postings.missing",
    },
    request_vectors: {"vector.unrequested"},
    replace_vector_indexes: {
        "vector_index.missing",
        "vector_index.invalid",
        "vector_index.bounds",
        "vector_index.unused",
    },
    enter_outcomes: {"ledger.missing"},
    acknowledge: {"pending.done"},
    drop_letters: {"dead_letter.done"},
    finish_drops: {"generation.dropping"},
    # last, because a replay refuses documents that are newer than the log
    replay_project: {"postings.broken", "postings.doubled", "postings.orphaned"},
}


async def repair_findings(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Repair everything possible; return the reasons of what can't be repaired.

    A repair that fails does not prevent the others; what it has completed stays.
    """
    failures: list[str] = []
    for repair, names in REPAIRS.items():
        chosen = [finding for finding in findings if finding.name in names]
        if chosen:
            try:
                failures += await repair(context, chosen)
            except HeadraceError as error:
                failures.append(str(error))
    repairable = {name for names in REPAIRS.values() for name in names}
    return failures + [
        f"{finding.name}: {finding.remedy}"
        for finding in findings
        if finding.name not in repairable
    ]
