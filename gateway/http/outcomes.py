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
    caller: CallerOf,
    services: ServicesOf,
    token: str | None = None,
    event_id: str | None = None,
    prefer: Annotated[str | None, Header(examples=["wait=5"])] = None,
) -> ChangeRow | WaitingChange:
    """Show the outcome of a change; with `Prefer: wait=N`, wait up to N seconds for it.

    It is named by its token, or by its event id within 24 hours, unless it is signed. The state is
    `waiting` until a worker has handled it. A token that no gateway has accepted in the last 24
    hours is unknown until then; an event id is known from any publisher.
    """
    knowledge, wait = services.knowledge, wait_of(prefer)
    knowledge.reading(caller, project)
    if token is not None and event_id is None:
        _check_token(token)
        return await knowledge.change(caller, project, token, wait=wait)
    if event_id is not None and token is None:
        return await knowledge.change_of_event(caller, project, event_id, wait=wait)
    raise UsageError("a change is named by its token or by its event id", "give one of the two")


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
