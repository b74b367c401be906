"""Event streams (server-sent events): outcomes of a project, a question, and the deployment."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from events.client.feed import FedOutcome, OutcomeFeed
from events.client.outcomes import Outcome
from events.fields import Batch
from gateway.auth.callers import Caller, Right
from gateway.http.problems import problem_of
from gateway.http.services import CallerOf, KeyedRoute, Services, ServicesOf
from gateway.knowledge import Question
from gateway.operations.operations import Operations
from runtime.errors import Busy, HeadraceError, NotFound, Unavailable, UsageError
from store.views.batches import BatchProgress

__all__ = ["EVENT_STREAM", "operation_streams", "question_stream", "router"]

router = APIRouter(tags=["streams"], route_class=KeyedRoute)

EVENT_STREAM = "text/event-stream"
_RECONNECT = "retry: 2000\n\n"
_IDLE = timedelta(seconds=15)
_PROGRESS = timedelta(seconds=0.5)
_PROGRESS_SHARE = 10
_WAITING_SECONDS = 1.0
_STATUS_SECONDS = 2.0
_ID = re.compile(r"(\d{1,3}):(\d{1,15}-\d{1,10})")
_OPEN = "headrace_streams"
_PROGRESS_BODY = TypeAdapter(BatchProgress)


@router.get("/v1/projects/{project}/events", response_class=StreamingResponse)
async def follow_project(
    request: Request,
    project: str,
    caller: CallerOf,
    services: ServicesOf,
    batch: Annotated[Batch | None, Query()] = None,
    prefix: str | None = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Follow the outcomes of changes: `document.indexed`, `document.embedded`, `document.rejected`.

    With `batch`, `batch.progress` follows too. The first `id` comes at once, and all later outcomes
    follow. A client that comes back with `Last-Event-ID` goes on where it was, within the latest
    100,000 outcomes.
    """
    services.knowledge.reading(caller, project)
    after = _positions(last_event_id)
    events = _outcomes(services, caller, project, batch, prefix, after)
    return _response(request, services, events)


def question_stream(
    request: Request, services: Services, caller: Caller, project: str, question: Question
) -> StreamingResponse:
    """Answer a question as a stream: `query.waiting`, and then one of its two ends."""
    caller.require(Right.ASK)
    caller.scope(project)
    return _response(request, services, _answer(services, caller, project, question))


def operation_streams(operations: Operations) -> APIRouter:
    """Build the streams of a process with an operator's credentials."""
    operators = APIRouter(prefix="/v1", tags=["operations"], route_class=KeyedRoute)

    @operators.get("/status/events", response_class=StreamingResponse)
    async def follow_status(
        request: Request, caller: CallerOf, services: ServicesOf
    ) -> StreamingResponse:
        """Follow the status of the deployment, every 2 seconds."""
        caller.require(Right.OPERATE)
        return _response(request, services, _status(operations, services.feed))

    @operators.get("/replay/{replay_id}/events", response_class=StreamingResponse)
    async def follow_replay(
        request: Request, replay_id: str, caller: CallerOf, services: ServicesOf
    ) -> StreamingResponse:
        """Follow a replay until it has ended."""
        caller.require(Right.OPERATE)
        await operations.replay(replay_id)
        return _response(request, services, _replay(operations, services.feed, replay_id))

    return operators


def _response(
    request: Request, services: Services, events: AsyncGenerator[str]
) -> StreamingResponse:
    state = request.app.state
    count: int = getattr(state, _OPEN, 0)
    if count >= services.settings.gateway.streams:
        raise Busy(
            f"{count} event streams are open",
            "close one, or run another gateway",
            retry_after=timedelta(seconds=1),
        )

    async def counted() -> AsyncGenerator[str]:
        setattr(state, _OPEN, getattr(state, _OPEN, 0) + 1)
        try:
            yield _RECONNECT
            async with aclosing(events) as open_events:
                async for event in open_events:
                    yield event
        finally:
            setattr(state, _OPEN, getattr(state, _OPEN) - 1)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(counted(), headers=headers, media_type=EVENT_STREAM)


def _event(name: str, data: str, event_id: str | None = None) -> str:
    identity = "" if event_id is None else f"id: {event_id}\n"
    return f"event: {name}\n{identity}data: {data}\n\n"


async def _outcomes(
    services: Services,
    caller: Caller,
    project: str,
    batch: str | None,
    prefix: str | None,
    after: Mapping[int, str] | None,
) -> AsyncGenerator[str]:
    progress = _Progress(services, project, batch) if batch is not None else None
    idle = _IDLE if progress is None else _PROGRESS
    async with aclosing(services.feed.subscribe(after, idle=idle)) as feed:
        quiet_since = -math.inf  # so that the first position is sent at once
        async for fed in feed:
            outcome = fed.outcome
            if outcome is not None and _is_seen(outcome, caller, project, batch, prefix):
                yield _event(outcome.type, outcome.data.model_dump_json(), _id_of(fed))
                quiet_since = time.monotonic()
            if progress is not None and outcome is not None:
                progress.note(outcome)
            if time.monotonic() - quiet_since >= _IDLE.total_seconds():
                yield f": nothing new\nid: {_id_of(fed)}\n\n"
                quiet_since = time.monotonic()
            if progress is not None and (line := await progress.line()) is not None:
                yield line
                quiet_since = time.monotonic()


class _Progress:
    """Progress of a batch, twice a second at most, and less often if it is slow to count."""

    def __init__(self, services: Services, project: str, batch: str) -> None:
        self._services = services
        self._project = project
        self._batch = batch
        self._next_at = 0.0
        self._has_moved = True

    def note(self, outcome: Outcome) -> None:
        """Note an outcome, also one that the stream leaves out: it may be of the batch."""
        is_own = outcome.batch == self._batch and outcome.data.project == self._project
        self._has_moved |= is_own

    async def line(self) -> str | None:
        """Return an event if the batch has moved and the last event is old enough."""
        began = time.monotonic()
        if not self._has_moved or began < self._next_at:
            return None
        self._has_moved = False
        try:
            progress = await self._services.batches.progress(self._project, self._batch)
        except NotFound:  # no change of it is handled; its first outcome counts again
            return None
        except Unavailable:  # it is counted later, and the outcomes go on
            self._has_moved = True
            return None
        finally:
            ended = time.monotonic()
            shortest, longest = _PROGRESS.total_seconds(), _IDLE.total_seconds()
            self._next_at = ended + min(max(shortest, _PROGRESS_SHARE * (ended - began)), longest)
        return _event("batch.progress", _PROGRESS_BODY.dump_json(progress).decode())


def _is_seen(
    outcome: Outcome, caller: Caller, project: str, batch: str | None, prefix: str | None
) -> bool:
    data = outcome.data
    return (
        data.project == project
        and data.agent in (None, caller.agent)
        and (batch is None or outcome.batch == batch)
        and (prefix is None or (data.uri or "").startswith(prefix))
    )


def _id_of(fed: FedOutcome) -> str:
    return ",".join(f"{partition}:{entry_id}" for partition, entry_id in fed.positions.items())


def _positions(last_event_id: str | None) -> dict[int, str] | None:
    if not last_event_id:
        return None
    parts = [_ID.fullmatch(part) for part in last_event_id.split(",")]
    if not all(parts):
        raise UsageError(
            f"Last-Event-ID {last_event_id[:80]!r} is not the id of an event of this stream",
            "send the id of the last event, or none",
        )
    return {int(part[1]): part[2] for part in parts if part is not None}


async def _answer(
    services: Services, caller: Caller, project: str, question: Question
) -> AsyncGenerator[str]:
    began = time.monotonic()
    asking = asyncio.create_task(services.knowledge.ask(caller, project, question))
    try:
        while not (await asyncio.wait({asking}, timeout=_WAITING_SECONDS))[0]:
            waited_ms = round((time.monotonic() - began) * 1000)
            yield _event("query.waiting", json.dumps({"waited_ms": waited_ms}))
        try:
            yield _event("query.answered", asking.result().model_dump_json(exclude_none=True))
        except HeadraceError as error:
            yield _event("query.failed", json.dumps(problem_of(error)))
    finally:
        asking.cancel()


async def _status(operations: Operations, feed: OutcomeFeed) -> AsyncGenerator[str]:
    while not feed.is_closed:
        try:
            yield _event("status", json.dumps(await operations.status(), default=str))
        except HeadraceError as error:
            yield _event("problem", json.dumps(problem_of(error)))
        await asyncio.sleep(_STATUS_SECONDS)


async def _replay(operations: Operations, feed: OutcomeFeed, replay_id: str) -> AsyncGenerator[str]:
    while not feed.is_closed:
        replay = await operations.replay(replay_id)
        yield _event("replay.progress", replay.model_dump_json())
        if replay.state != "running":
            return
        await asyncio.sleep(_WAITING_SECONDS)
