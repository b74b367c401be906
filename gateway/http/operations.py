"""Routes of operators: status, dead letters, generations, replays and evaluations.

They exist only in a process that was started with ``--operator``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Response
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field

from events.fields import Text
from events.models import DocumentKind
from events.replays import ReplayState
from events.streams.letter_selection import LetterCount, LetterOutcome
from gateway.auth.callers import Caller, Right
from gateway.http.services import KeyedRoute
from gateway.operations.history import LONGEST_MINUTES, HistoryPoint
from gateway.operations.letters import Letter
from gateway.operations.operations import GenerationRow, Operations, ReplayPlan
from runtime.errors import Forbidden
from store.generations.evaluations import Evaluation, EvaluationRow

__all__ = ["operation_routes"]

_FORBID = ConfigDict(extra="forbid")
_MOST_LETTERS = 1_000

PageSize = Annotated[int, Query(ge=1, le=200)]
LetterId = Annotated[str, Field(max_length=100)]
GenerationId = Annotated[int, InPath(ge=1, lt=2**31)]


class LetterFields(BaseModel):
    """Dead letters of a topic, a project or an error; fields that are absent allow every value."""

    model_config = _FORBID
    topic: str | None = None
    project: str | None = None
    error: str | None = None


class LetterChoice(BaseModel):
    """Dead letters by id, or all of a filter with the number that it matches now."""

    model_config = _FORBID
    ids: Annotated[list[LetterId], Field(min_length=1, max_length=_MOST_LETTERS)] | None = None
    filter: LetterFields | None = None
    count: Annotated[int, Field(ge=0)] | None = None

    @property
    def fields(self) -> dict[str, str] | None:
        """The filter without absent fields."""
        return None if self.filter is None else self.filter.model_dump(exclude_none=True)


class ReplayOptions(BaseModel):
    """Options of a replay, as of ``headrace replay``; ``gate`` names a directory of the server."""

    model_config = _FORBID
    model: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    chunking: Annotated[Text, Field(min_length=1, max_length=40)] | None = None
    since: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    kind: DocumentKind | None = None
    collection: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    gate: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    max_drop: Annotated[float, Field(ge=0, le=1)] | None = None
    dry_run: bool = False


class LetterPage(BaseModel):
    """One page of dead letters. ``next`` is the value of ``before`` for the next page."""

    items: list[Letter]
    next: str | None = None


class LetterCounts(BaseModel):
    """Numbers of dead letters by topic, error and project."""

    items: list[LetterCount]


class LetterOutcomes(BaseModel):
    """Result of an operation on each letter."""

    items: list[LetterOutcome]


class HistoryPoints(BaseModel):
    """Figures by minute, oldest first."""

    items: list[HistoryPoint]


class Generations(BaseModel):
    """Generations of a project, oldest first."""

    items: list[GenerationRow]


class ReplayList(BaseModel):
    """Replays, switches and drops, newest first."""

    items: list[ReplayState]


class EvaluationList(BaseModel):
    """Saved evaluations of a project, newest first."""

    items: list[EvaluationRow]


def operation_routes(operations: Operations, caller: Callable[..., Awaitable[Caller]]) -> APIRouter:
    """Build the routes of a process with an operator's credentials.

    ``caller`` is the dependency that authenticates a request. The caller must have the right
    ``operate`` and be of no project, because dead letters and replays are of all projects.
    """

    async def check_operator(holder: Caller = Depends(caller)) -> None:  # noqa: B008
        holder.require(Right.OPERATE)
        if holder.project is not None:
            raise Forbidden(
                f"the API key is valid for {holder.project} only",
                "use a key of all projects (`headrace api-keys add --operator`)",
            )

    router = APIRouter(
        prefix="/v1",
        tags=["operations"],
        dependencies=[Depends(check_operator)],
        route_class=KeyedRoute,
    )
    _add_deployment(router, operations)
    _add_letters(router, operations)
    _add_replays(router, operations)
    _add_generations(router, operations)
    return router


def _add_deployment(router: APIRouter, operations: Operations) -> None:
    @router.get("/status")
    async def show_status() -> dict[str, Any]:
        """Show the state of the deployment, as `headrace status --json` prints it."""
        return await operations.status()

    @router.get("/history")
    async def show_history(
        minutes: Annotated[int, Query(ge=1, le=LONGEST_MINUTES)] = 120,
    ) -> HistoryPoints:
        """Show figures by minute; those that are not in the ledger are samples of this process."""
        return HistoryPoints(items=await operations.history(minutes))


def _add_letters(router: APIRouter, operations: Operations) -> None:
    @router.get("/dead-letters")
    async def list_letters(
        topic: str | None = None,
        project: str | None = None,
        error: str | None = None,
        before: str | None = None,
        limit: PageSize = 50,
    ) -> LetterPage:
        """List dead letters, newest first."""
        letters = await operations.dead_letters(
            topic=topic, project=project, error=error, before=before, limit=limit + 1
        )
        page = letters[:limit]
        return LetterPage(items=page, next=page[-1].id if len(letters) > limit else None)

    @router.get("/dead-letters/counts")
    async def count_letters() -> LetterCounts:
        """Count dead letters by topic, error and project."""
        return LetterCounts(items=await operations.dead_letter_counts())

    @router.get("/dead-letter")
    async def show_letter(id: LetterId) -> Letter:  # noqa: A002 - the name of the parameter
        """Show one dead letter; its event is decoded if it is JSON."""
        return await operations.dead_letter(id)

    @router.post("/dead-letters:redrive")
    async def redrive_letters(choice: LetterChoice) -> LetterOutcomes:
        """Redrive dead letters; letters that arrived since the count was read are not touched."""
        outcomes = await operations.redrive(choice.ids, filter=choice.fields, count=choice.count)
        return LetterOutcomes(items=outcomes)

    @router.post("/dead-letters:drop")
    async def drop_letters(choice: LetterChoice) -> LetterOutcomes:
        """Delete dead letters permanently."""
        outcomes = await operations.drop(choice.ids, filter=choice.fields, count=choice.count)
        return LetterOutcomes(items=outcomes)


def _add_replays(router: APIRouter, operations: Operations) -> None:
    @router.get("/replays")
    async def list_replays() -> ReplayList:
        """List the last 50 replays, switches and drops of all processes, newest first."""
        return ReplayList(items=await operations.replays())

    @router.get("/replay/{replay_id}")
    async def show_replay(replay_id: str) -> ReplayState:
        """Show the progress of a replay, or its result."""
        return await operations.replay(replay_id)

    @router.delete("/replay/{replay_id}")
    async def stop_replay(replay_id: str) -> ReplayState:
        """Stop a replay; what it has built is kept, and the live index is unchanged."""
        return await operations.stop_replay(replay_id)

    @router.post("/projects/{project}/replays", status_code=202)
    async def start_replay(
        project: str,
        response: Response,
        options: Annotated[ReplayOptions, Body(default_factory=ReplayOptions)],
    ) -> ReplayState | ReplayPlan:
        """Start a replay, or estimate it with `dry_run`."""
        started = await operations.start_replay(project, **options.model_dump())
        if isinstance(started, ReplayPlan):
            response.status_code = 200
        else:
            response.headers["Location"] = f"/v1/replay/{started.id}"
        return started


def _add_generations(router: APIRouter, operations: Operations) -> None:
    @router.get("/projects/{project}/generations")
    async def list_generations(project: str) -> Generations:
        """List the generations of a project, oldest first."""
        return Generations(items=await operations.generations(project))

    @router.post("/projects/{project}/generation/{generation}:switch")
    async def switch(project: str, generation: GenerationId) -> ReplayState:
        """Bring a former generation up to date, and make it live."""
        return await operations.switch(project, generation)

    @router.post("/projects/{project}:rollback")
    async def rollback(project: str) -> ReplayState:
        """Roll back to the generation that was live before."""
        return await operations.rollback(project)

    @router.delete("/projects/{project}/generation/{generation}")
    async def drop_generation(project: str, generation: GenerationId) -> ReplayState:
        """Delete a generation that is not live."""
        return await operations.drop_generation(project, generation)

    @router.get("/projects/{project}/evaluations")
    async def list_evaluations(project: str) -> EvaluationList:
        """List the saved evaluations of a project, newest first."""
        return EvaluationList(items=await operations.evaluations(project))

    @router.get("/evaluation/{evaluation_id}")
    async def show_evaluation(evaluation_id: str) -> Evaluation:
        """Show a saved evaluation with the scores of its questions."""
        return await operations.evaluation(evaluation_id)
