"""Routes that follow changes: one, all of a project, or all of a batch."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel

from events.names import LogPosition
from gateway.http.services import CallerOf, KeyedRoute, ServicesOf, wait_of
from gateway.knowledge import WaitingChange
from runtime.errors import MalformedEvent, UsageError
from store.views.batches import BatchProgress, RejectedChange
from store.views.listing import ChangeRow, ChangeState

__all__ = ["router"]

router = APIRouter(prefix="/v1/projects/{project}", tags=["changes"], route_class=KeyedRoute)

PageSize = Annotated[int, Query(ge=1, le=200)]


class ChangePage(BaseModel):
    """One page of handled changes, newest first. ``next`` is the value of ``after``."""

    items: list[ChangeRow]
    next: str | None = None


class BatchBody(BaseModel):
    """Progress of a batch, and the latest changes of it that were rejected."""

    progress: BatchProgress
    rejected: list[RejectedChange]


@router.get("/change")
async def show_change(
    project: str,
    token: str,
    caller: CallerOf,
    services: ServicesOf,
    prefer: Annotated[str | None, Header(examples=["wait=5"])] = None,
) -> ChangeRow | WaitingChange:
    """Show the outcome of a change; with `Prefer: wait=N`, wait up to N seconds for it.

    The state is `waiting` from when a gateway has accepted the change, for 24 hours at most, until
    a worker has handled it.
    """
    services.knowledge.reading(caller, project)
    _check_token(token)
    return await services.knowledge.change(caller, project, token, wait=wait_of(prefer))


@router.get("/changes")
async def list_changes(
    project: str,
    caller: CallerOf,
    services: ServicesOf,
    after: str | None = None,
    state: ChangeState | None = None,
    uri: str | None = None,
    limit: PageSize = 50,
) -> ChangePage:
    """List handled changes, newest first."""
    listing = services.knowledge.reading(caller, project)
    if after is not None:
        _check_token(after)
    rows = await listing.changes(
        project, caller.agent, after=after, state=state, uri=uri, limit=limit + 1
    )
    page = rows[:limit]
    return ChangePage(items=page, next=page[-1].token if len(rows) > limit else None)


@router.get("/batch/{batch}")
async def show_batch(project: str, batch: str, caller: CallerOf, services: ServicesOf) -> BatchBody:
    """Show the progress of a batch, counted from the ledger."""
    services.knowledge.reading(caller, project)
    progress = await services.batches.progress(project, batch)
    rejected = await services.batches.rejected(project, batch, agent=caller.agent)
    return BatchBody(progress=progress, rejected=rejected)


def _check_token(token: str) -> None:
    try:
        LogPosition.from_token(token)
    except MalformedEvent as error:
        raise UsageError(error.message, "use the token of a receipt") from None
