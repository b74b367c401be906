"""Errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from events.client.questions import QueryRefused
from events.fields import problem_in_words
from events.models import Problem
from runtime import errors, metrics
from runtime.errors import HeadraceError, Retryable

__all__ = [
    "HTTP_CODES",
    "PROBLEM_TYPE",
    "STATUS",
    "BodyTooLarge",
    "ProblemKind",
    "RejectedChange",
    "headrace_problem",
    "http_problem",
    "install",
    "problem_kinds",
    "problem_of",
    "problem_of_status",
    "status_of",
]

log = structlog.get_logger(__name__)

STATUS: Mapping[type[HeadraceError], int] = {
    errors.Unauthenticated: 401,
    errors.AccessRefused: 403,
    errors.SignatureRefused: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.SourceConflict: 409,
    errors.OutdatedChange: 409,
    errors.PreconditionFailed: 412,
    errors.UsageError: 422,
    errors.Poison: 422,
    errors.RateLimited: 429,
    errors.DeadlineExceeded: 504,
    errors.Retryable: 503,
    errors.ConfigurationError: 503,
    HeadraceError: 500,
}
"""Status of each error; the nearest class in its tree decides."""

HTTP_CODES: Mapping[int, tuple[str, str]] = {
    400: ("MalformedRequest", "send a request as /docs describes it"),
    403: ("Forbidden", "add the origin to `origins` in HEADRACE_GATEWAY"),
    404: ("NotFound", "/docs lists the paths"),
    405: ("MethodNotAllowed", "the header Allow lists the methods of this path"),
    406: ("NotAcceptable", "accept `application/json` and `text/event-stream`"),
    408: ("RequestTimeout", "send the request faster"),
    413: ("BodyTooLarge", "send less at once"),
    415: ("UnsupportedMediaType", "/docs lists the media types of this path"),
    421: ("MisdirectedRequest", "add the name to `hosts` in HEADRACE_GATEWAY"),
    431: ("HeadTooLarge", "send shorter headers, and a shorter address"),
}
"""Code and remedy of the errors that only HTTP has, by status."""

_REPORT = "report it with `instance`; the log of the gateway has the details"
_TITLES = {error.__name__: error for error in vars(errors).values() if isinstance(error, type)}
PROBLEM_TYPE = "application/problem+json"
"""Media type of problems."""
_JSON_TYPE = re.compile(r"application/(.+\+)?json")


class BodyTooLarge(HTTPException):
    """The body of a request is over its limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(413, f"the body is over {limit_bytes:,} bytes")


class RejectedChange(HeadraceError):
    """A change was published and then rejected by a worker; ``problem`` gives the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, "correct the document, and publish it as a new event")
        self.problem = problem

    @property
    def code(self) -> str:
        """The problem's type."""
        return self.problem.type


def status_of(code: str) -> int:
    """Status of an error by its code; 500 for an unknown code."""
    error = _TITLES.get(code)
    if error is None or not issubclass(error, HeadraceError):
        return 500
    return next(STATUS[parent] for parent in error.__mro__ if parent in STATUS)


def problem_of(error: HeadraceError, instance: str | None = None) -> dict[str, Any]:
    """Describe an error as a problem; ``instance`` is the id of the request."""
    problem = _problem(error.code, status_of(error.code), error.message, error.remedy, instance)
    if isinstance(error, QueryRefused | RejectedChange):
        problem["retryable"] = error.problem.retryable
    elif isinstance(error, Retryable):
        problem["retryable"] = True
        after = error.retry_after
        problem["retry_after_s"] = 1 if after is None else max(1, math.ceil(after.total_seconds()))
    return problem


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem. ``meaning`` is a text of several sentences, ``title`` the first."""

    code: str
    status: int
    title: str
    meaning: str
    remedy: str
    retryable: bool


def problem_kinds() -> list[ProblemKind]:
    """List the kinds of problems by status and code."""
    kinds = [_kind_of(name, error) for name, error in _TITLES.items() if _is_kind(error)]
    for status, (code, remedy) in HTTP_CODES.items():
        if code not in {kind.code for kind in kinds}:
            title = f"{_spaced(code)}."
            kinds.append(ProblemKind(code, status, title, title, remedy, retryable=False))
    defect = "The gateway failed because of a defect."
    kinds.append(ProblemKind("InternalError", 500, defect, defect, _REPORT, retryable=False))
    return sorted(kinds, key=lambda kind: (kind.status, kind.code))


def _is_kind(error: type) -> bool:
    return issubclass(error, HeadraceError) and error is not HeadraceError


def _kind_of(name: str, error: type[HeadraceError]) -> ProblemKind:
    meaning = " ".join((getdoc(error) or name).split())
    title = f"{meaning.partition('. ')[0].rstrip('.')}."
    is_retryable = issubclass(error, Retryable)
    remedy = "repeat the request after `retry_after_s`" if is_retryable else "see `remedy`"
    return ProblemKind(name, status_of(name), title, meaning, remedy, is_retryable)


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem."""
    app.add_exception_handler(HeadraceError, _headrace_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(ValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _defect)


async def _headrace_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)  # the handler is registered for these
    return headrace_problem(request, error)


def headrace_problem(request: Request, error: HeadraceError) -> JSONResponse:
    """Describe an error, and count it."""
    problem = problem_of(error, _instance(request))
    if isinstance(error, errors.RateLimited):
        metrics.RATE_LIMITED.inc(reason=error.code)
    elif isinstance(error, errors.Unauthenticated):
        metrics.AUTHENTICATION_FAILED.inc(reason=error.code)
    elif isinstance(error, errors.LogFull):
        metrics.PUBLISHING_REFUSED.inc(reason=error.code)
    if problem["status"] >= 500 and not isinstance(
        error, Retryable | QueryRefused | RejectedChange
    ):
        log.error("http.failed", code=error.code, detail=str(error))
    return _response(problem, _headers(error, problem))


def _headers(error: HeadraceError, problem: Mapping[str, Any]) -> dict[str, str]:
    headers = {}
    if "retry_after_s" in problem:
        headers["Retry-After"] = str(problem["retry_after_s"])
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return headers


async def _invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError | ValidationError)
    wrong = error.errors()
    media_type = _unparsed_type(request, wrong)
    if media_type is not None:
        detail = f"this path takes JSON, but `Content-Type` is {media_type[:80] or 'missing'}"
        remedy = "send the header `Content-Type: application/json`"
        return _response(_problem(HTTP_CODES[415][0], 415, detail, remedy, _instance(request)))
    if any(field["type"] == "json_invalid" for field in wrong):
        code, remedy = HTTP_CODES[400]
        problem = _problem(code, 400, "the body is not JSON", remedy, _instance(request))
        return _response(problem)
    fields = [_field(field) for field in wrong[:20]]
    problem = _problem(
        "UsageError",
        422,
        f"{fields[0]['pointer']}: {fields[0]['detail']}",
        "correct the fields in `errors`",
        _instance(request),
    )
    return _response(problem | {"errors": fields})


def _unparsed_type(request: Request, wrong: Sequence[Any]) -> str | None:
    """Media type of a body that was not parsed, '' if it has none; None if it was parsed."""
    if not any(tuple(error["loc"]) == ("body",) and error["type"] != "missing" for error in wrong):
        return None
    named = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if _JSON_TYPE.fullmatch(named) else named


def _field(error: Mapping[str, Any]) -> dict[str, str]:
    where: Sequence[object] = error["loc"]
    detail = problem_in_words(error)
    if len(where) > 1 and where[0] in {"query", "header", "path"}:
        return {"parameter": str(where[1]), "pointer": f"?{where[1]}", "detail": detail}
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in where if part != "body"]
    return {"pointer": "".join(f"/{part}" for part in parts) or "/", "detail": detail}


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return http_problem(request, error)


def http_problem(request: Request, error: HTTPException) -> JSONResponse:
    """Describe an error that only HTTP has."""
    problem = problem_of_status(error.status_code, str(error.detail), _instance(request))
    return _response(problem, dict(error.headers or {}))


def problem_of_status(status: int, detail: str, instance: str | None = None) -> dict[str, Any]:
    """Describe an error that only HTTP has; ``instance`` is the id of the request."""
    code, remedy = HTTP_CODES.get(status, ("UsageError", "/docs describes the request"))
    return _problem(code, status, detail, remedy, instance)


async def _defect(request: Request, error: Exception) -> JSONResponse:
    log.error("http.defect", instance=_instance(request), exc_info=error)
    return _response(
        _problem(
            "InternalError",
            500,
            "the gateway failed because of a defect",
            _REPORT,
            _instance(request),
        )
    )


def _problem(
    code: str, status: int, detail: str, remedy: str, instance: str | None
) -> dict[str, Any]:
    kind = _TITLES.get(code)
    title = (kind.__doc__ or code).splitlines()[0].rstrip(".") if kind else _spaced(code)
    problem: dict[str, Any] = {
        "type": f"urn:headrace:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "remedy": remedy or "`detail` names the remedy; /docs describes the request",
        "retryable": False,
    }
    return problem | ({"instance": f"urn:uuid:{instance}"} if instance else {})


def _spaced(code: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in code).strip()


def _instance(request: Request) -> str | None:
    return request.scope.get("headrace.request_id")


def _response(problem: dict[str, Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(problem, problem["status"], headers, PROBLEM_TYPE)
