"""Comparison of the stored documents with the fold of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from processors.reconciling.stream_reading import INDEXER
from processors.replaying.folding import Key, LastChange, Order
from store.digests import StoredDigest
from store.inspecting import outcomes_of

__all__ = ["AHEAD", "BEHIND", "MEANINGS", "find_document_drifts", "order_of"]

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
    places = {order for _, key, order in suspects}
    outcomes = await outcomes_of(case.connection, case.generation.project_id, places)
    judge = _Judge(case, outcomes)
    subjects: defaultdict[str, list[Subject]] = defaultdict(list)
    for name, key, order in suspects:
        judged = judge(name, order)
        if judged is not None:
            stored = case.documents.get(key)
            subjects[judged].append(
                Subject(case.label(key), (order, stored and order_of(stored)), key)
            )
    return [
        drift
        for name, meaning in MEANINGS.items()
        for drift in case.drift(
            name, subjects[name], meaning, cure=_REPUBLISH if name == "document.unlogged" else ""
        )
    ]


def order_of(stored: StoredDigest) -> Order:
    """Log position of a stored document."""
    return stored.position, stored.partition


def _suspects(case: Case) -> Iterator[tuple[str, Key, Order]]:
    """Yield the name of the drift, the document, and the log position of the change concerned."""
    last = case.evidence.fold.last
    for key, change in last.items():
        name = _compare(change, case.documents.get(key))
        if name is not None:
            stored = case.documents.get(key)
            ahead = name in AHEAD and stored is not None
            yield name, key, order_of(stored) if ahead and stored else change.order
    for key, stored in case.documents.items():
        if key not in last:
            yield "document.unknown", key, order_of(stored)


def _compare(last: LastChange, stored: StoredDigest | None) -> str | None:
    if stored is None:
        return "document.missing"
    if order_of(stored) != last.order:
        return "document.older" if stored.rank < last.rank else "document.newer"
    if stored.deleted != last.deleted:
        return "document.not_deleted" if last.deleted else "document.deleted"
    if stored.content_hash != last.content_hash:
        return "document.content"
    return None if stored.origin == last.change.event.data.origin else "document.source"


class _Judge:
    """Distinction between drifts and in-flight changes."""

    def __init__(self, case: Case, outcomes: dict[Order, str]) -> None:
        evidence = case.evidence
        self._began = evidence.streams.began
        self._in_streams = {entry.change.order for entry in evidence.entries}
        self._handled = evidence.handled(INDEXER)
        self._outcomes = outcomes
        self._positions = frozenset(evidence.positions)
        self._damaged = bool(evidence.damaged)

    def __call__(self, name: str, order: Order) -> str | None:
        """Final name of the drift. Returns None if it may be an in-flight change."""
        if name in BEHIND:
            return name if self._is_done(order) else None
        return self._ahead(name, order) if name in AHEAD else name

    def _is_done(self, order: Order) -> bool:
        if order in self._outcomes:
            return self._outcomes[order] != "rejected"
        if order in self._in_streams:
            return order in self._handled
        return order[0] < self._began

    def _ahead(self, name: str, order: Order) -> str | None:
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
