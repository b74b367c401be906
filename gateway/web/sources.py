"""Screens of sources: the numbers of their last sync, and the progress of one batch."""

from __future__ import annotations

from starlette.responses import Response

from gateway.web.visits import Visit
from runtime.errors import NotFound
from store.views.batches import BatchProgress, RejectedChange
from store.views.listing import SourceRow

__all__ = ["show", "show_batch"]

_REJECTED = 5


async def show(visit: Visit) -> Response:
    """List the sources of a project with found, indexed and skipped documents."""
    rows = await visit.listing.sources(visit.project, visit.caller.agent)
    progress = {row.id: await _progress(visit, row) for row in rows}
    return visit.render(
        "sources.html",
        rows=rows,
        progress=progress,
        running=any(numbers.waiting for numbers in progress.values() if numbers),
        rejected=await visit.changes(state="rejected", limit=_REJECTED),
    )


async def show_batch(visit: Visit) -> Response:
    """Show the progress of one batch, counted in the ledger, and its rejected changes."""
    batch = visit.parameter("id")
    progress = await visit.batches.progress(visit.project, batch)
    rejected: list[RejectedChange] = []
    if progress.rejected:
        rejected = await visit.batches.rejected(visit.project, batch, agent=visit.caller.agent)
    return visit.render(
        "batch.html",
        batch=batch,
        progress=progress,
        running=progress.waiting > 0,
        rejected=rejected,
    )


async def _progress(visit: Visit, row: SourceRow) -> BatchProgress | None:
    """Progress of the last sync of a source. Returns None if nothing of it is counted."""
    if row.batch is None:
        return None
    try:
        return await visit.batches.progress(visit.project, row.batch.id)
    except NotFound:
        return None
