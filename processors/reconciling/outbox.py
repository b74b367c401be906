"""Check of the outbox: durable events must reach the archive in time."""

from __future__ import annotations

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from store.inspecting import stuck_outbox

__all__ = ["find_outbox_drifts"]

_LONGEST_S = 600.0


async def find_outbox_drifts(case: Case) -> list[Drift]:
    """Find events that have waited for the archive for more than ten minutes."""
    stuck = await stuck_outbox(case.connection, case.generation.project_id, _LONGEST_S)
    return case.drift(
        "outbox.stuck",
        [Subject(f"event {event_id}", event_id) for event_id in stuck],
        "events wait in the outbox for an archiver",
        cure="headrace worker --only archiver",
    )
