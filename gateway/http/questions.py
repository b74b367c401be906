"""Routes of questions."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events.models import Judgement, Kind, QueryAnswer
from gateway.auth.callers import Caller, Right
from gateway.http.problems import problem_of
from gateway.http.services import CallerOf, KeyedRoute, Services, ServicesOf
from gateway.http.streams import EVENT_STREAM, question_stream
from gateway.knowledge import Question, QuestionOptions
from runtime.errors import HeadraceError

__all__ = ["router"]

router = APIRouter(tags=["questions"], route_class=KeyedRoute)

_MARKDOWN = "text/markdown"
_USUAL_CONTEXT = 4_000
_PARAMETERS = {
    "text": "q",
    "kinds": "kind",
    "collections": "collection",
    "uri_prefix": "under",
    "path_globs": "path",
    "languages": "lang",
    "symbols": "symbol",
}
"""Parameters of an address whose name is not that of the field of a question."""


class QuestionLine(QuestionOptions):
    """A question in the address of a request, for a shell or a browser."""

    q: str = ""
    like: str | None = None
    under: str | None = None
    kind: tuple[Kind, ...] = ()
    collection: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    lang: tuple[str, ...] = ()
    symbol: tuple[str, ...] = ()
    where: str | None = None


class Questions(BaseModel):
    """Questions that are asked at once."""

    model_config = ConfigDict(extra="forbid")

    questions: Annotated[list[Question], Field(min_length=1, max_length=16)]


class JudgementReceipt(BaseModel):
    """Confirmation of a judgement; it counts once for each `event_id`."""

    event_id: str


class Answers(BaseModel):
    """For each question its answer, or a problem, in the order of the questions."""

    answers: list[QueryAnswer | dict[str, Any]]


@router.post("/v1/projects/{project}/ask", response_model=QueryAnswer)
async def ask(
    request: Request, project: str, question: Question, caller: CallerOf, services: ServicesOf
) -> Response:
    """Ask a question.

    With `Accept: text/markdown`, the response is the assembled context alone. With
    `Accept: text/event-stream`, it is a stream that ends with `query.answered` or `query.failed`.
    """
    if EVENT_STREAM in request.headers.get("accept", ""):
        return question_stream(request, services, caller, project, question)
    return await _answer(request, services, caller, project, question)


@router.get("/v1/projects/{project}/ask", response_model=QueryAnswer)
async def ask_line(
    request: Request,
    project: str,
    line: Annotated[QuestionLine, Query()],
    caller: CallerOf,
    services: ServicesOf,
) -> Response:
    """Ask a question by the address alone."""
    fields = line.model_dump(include=set(QuestionOptions.model_fields))
    filters = {
        "kinds": line.kind,
        "collections": line.collection,
        "uri_prefix": line.under,
        "path_globs": line.path,
        "languages": line.lang,
        "symbols": line.symbol,
        "where": line.where,
    }
    if bool(line.q) == (line.like is not None):
        needed = {"type": "value_error", "loc": ("query", "q"), "msg": "give either q or like"}
        raise RequestValidationError([needed])
    asked = {"text": line.q} if line.q else {"like": line.like}
    try:
        question = Question.model_validate(fields | asked | {"filters": filters})
    except ValidationError as error:
        raise RequestValidationError(list(map(_of_parameter, error.errors()))) from None
    return await _answer(request, services, caller, project, question)


@router.post("/v1/projects/{project}/ask:batch")
async def ask_many(
    project: str, questions: Questions, caller: CallerOf, services: ServicesOf
) -> Answers:
    """Ask up to 16 questions at once."""
    caller.require(Right.ASK)
    caller.scope(project)

    async def answer(question: Question) -> QueryAnswer | dict[str, Any]:
        try:
            return await services.knowledge.ask(caller, project, question)
        except HeadraceError as error:
            return problem_of(error)

    return Answers(answers=await asyncio.gather(*map(answer, questions.questions)))


@router.post("/v1/projects/{project}/judgements", status_code=202)
async def judge(
    project: str,
    judgement: Judgement,
    caller: CallerOf,
    services: ServicesOf,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=128)] = None,
) -> JudgementReceipt:
    """Judge one result of an answer that the caller got within the last hour.

    A worker leaves out a judgement of a question of another agent, or of a result that the answer
    does not have.
    """
    event_id = await services.knowledge.judge(caller, project, judgement, idempotency_key)
    return JudgementReceipt(event_id=event_id)


def _of_parameter(error: Any) -> dict[str, Any]:
    """Replace the field of a question in an error by the parameter that gave it."""
    names = [part for part in error["loc"] if part != "filters"]
    return {**error, "loc": ("query", _PARAMETERS.get(names[0], names[0])) if names else ()}


async def _answer(
    request: Request, services: Services, caller: Caller, project: str, question: Question
) -> Response:
    wants_context = _MARKDOWN in request.headers.get("accept", "")
    if wants_context and question.context_tokens is None:
        question = question.model_copy(update={"context_tokens": _USUAL_CONTEXT})
    answer = await services.knowledge.ask(caller, project, question)
    headers = _headers(answer)
    if wants_context:
        return Response(answer.context or "", headers=headers, media_type=_MARKDOWN)
    body = answer.model_dump_json(exclude_none=True)
    return Response(body, headers=headers, media_type="application/json")


def _headers(answer: QueryAnswer) -> dict[str, str]:
    """Repeat in headers what caches and tools read: freshness, generation and times."""
    stages = ", ".join(f"{stage};dur={ms:.1f}" for stage, ms in answer.timings_ms.items())
    return {
        "Headrace-Generation": str(answer.generation),
        "Headrace-Stale": f"?{int(answer.stale)}",
        "Headrace-Watermark": ", ".join(
            f"{stream}={entry}" for stream, entry in answer.watermark.items()
        ),
        "Server-Timing": stages,
        "Cache-Control": "no-store",
    }
