"""Repair of documents: remove those that the log never had, rebuild the others from the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from processors.reconciling.rebuilding import Rebuilding
from processors.replaying.folding import Key, Order
from store.mending import place_document, remove_document

__all__ = ["DOCUMENT_DRIFTS", "mend_documents"]

REBUILT = frozenset(
    {
        "document.missing",
        "document.older",
        "document.newer",
        "document.not_deleted",
        "document.deleted",
        "document.content",
        "document.source",
        "document.rows",
        "vector.missing",
        "vector.foreign",
        "vector.changed",
    }
)
"""Drifts that are repaired by rebuilding the document."""

DOCUMENT_DRIFTS = REBUILT | {"document.unknown"}
"""All drifts that this module repairs."""


async def mend_documents(case: Case, drifts: Sequence[Drift]) -> list[str]:
    """Repair all drifts of each document at once; return why some documents can't be repaired.

    Raises:
        Unavailable: a server is down; what was repaired stays.
    """
    unknown = _seen_at(drifts, "document.unknown")
    for key, seen_at in unknown.items():
        await remove_document(case.desk.tools.database, case.generation, key, seen_at)
    for key, seen_at in _seen_at(drifts, "document.newer").items():
        # move it to its last change: otherwise the fence would refuse the rebuild
        last = case.evidence.fold.last[key]
        origin = last.change.event.data.origin
        database = case.desk.tools.database
        await place_document(database, case.generation, key, seen_at, last.order, origin)
    wrong = {
        subject.document
        for name in REBUILT
        for subject in _subjects(drifts, name)
        if subject.document is not None
    }
    return await Rebuilding(case, _doubted(drifts)).run(wrong - unknown.keys())


def _subjects(drifts: Sequence[Drift], name: str) -> Iterator[Subject]:
    return (subject for drift in drifts if drift.name == name for subject in drift.subjects)


def _seen_at(drifts: Sequence[Drift], name: str) -> dict[Key, Order]:
    """Log positions that documents had at the look."""
    orders: dict[Key, Order] = {}
    for subject in _subjects(drifts, name):
        if subject.document is not None:
            _, orders[subject.document] = subject.key
    return orders


def _doubted(drifts: Sequence[Drift]) -> Mapping[str, Collection[bytes]]:
    """Hashes of texts, by model, whose vector differs from the cached one.

    It is unknown which of the two is wrong, so both are replaced.
    """
    doubted: defaultdict[str, set[bytes]] = defaultdict(set)
    for subject in _subjects(drifts, "vector.changed"):
        model, content_hash, _ = subject.key
        doubted[model].add(content_hash)
    return doubted
