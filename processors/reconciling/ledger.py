"""Comparison of the ledger with the streams: every acknowledged change must have an outcome."""

from __future__ import annotations

from collections.abc import Collection

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from processors.reconciling.stream_reading import INDEXER, StreamEntry
from processors.replaying.folding import Order
from store.inspecting import first_handled, outcomes_of

__all__ = ["find_ledger_drifts", "subject_of"]


async def find_ledger_drifts(case: Case) -> list[Drift]:
    """Find acknowledged changes without an outcome, and applied ones still pending or dead."""
    project_id = case.generation.project_id
    orders = {entry.change.order for entry in case.evidence.entries} | case.evidence.letters.keys()
    outcomes = await outcomes_of(case.connection, project_id, orders)
    first = await first_handled(case.connection, project_id)
    unknown = [] if first is None else _unknown(case, outcomes.keys(), first)
    done = {order for order, outcome in outcomes.items() if outcome != "rejected"}
    return [
        *case.drift(
            "ledger.missing",
            [subject_of(entry) for entry in unknown],
            "changes are acknowledged, but the ledger has no outcome of them",
        ),
        *case.drift(
            "pending.done",
            [subject_of(entry) for entry in _left_pending(case, done)],
            "changes are applied, but still pending, and no worker handles them",
        ),
        *case.drift(
            "dead_letter.done",
            [
                Subject(letter_id, letter_id)
                for order, letter_id in case.evidence.letters.items()
                if order in done
            ],
            "the changes of these dead letters have been applied",
        ),
    ]


def subject_of(entry: StreamEntry) -> Subject:
    """Subject for a change in the streams, labelled with its uri and token."""
    return Subject(f"{entry.change.event.data.uri} ({entry.token})", (entry.place, entry.entry_id))


def _unknown(case: Case, known: Collection[Order], first: int) -> list[StreamEntry]:
    """Acknowledged changes without an outcome.

    Changes rejected before the project existed are skipped: they are not in any ledger.
    """
    evidence = case.evidence
    return [
        entry
        for entry in evidence.entries
        if evidence.streams.handled(INDEXER, entry)
        and entry.change.position >= first
        and entry.change.order not in known
        and entry.change.order not in evidence.letters
    ]


def _left_pending(case: Case, done: Collection[Order]) -> list[StreamEntry]:
    longest_ms = case.desk.lease.total_seconds() * 1000
    cursors = case.evidence.streams.cursors
    return [
        entry
        for entry in case.evidence.entries
        if entry.change.order in done
        and cursors[INDEXER, entry.place].pending.get(entry.entry_id, -1) >= longest_ms
    ]
