"""Errors as problems."""

from __future__ import annotations

from datetime import timedelta

import pytest

from events.client.questions import QueryRefused
from events.models import Problem
from gateway.http.problems import ProblemKind, problem_kinds, problem_of, status_of
from runtime import errors

_ERRORS = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, errors.HeadraceError)
]


@pytest.mark.parametrize("error", _ERRORS)
def test_every_error_has_a_status(error: type[errors.HeadraceError]) -> None:
    assert 400 <= status_of(error.__name__) < 600


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("Unauthenticated", 401),
        ("Forbidden", 403),
        ("SignatureRefused", 403),
        ("UnknownProject", 404),
        ("Conflict", 409),
        ("PreconditionFailed", 412),
        ("UsageError", 422),
        ("EventIdReused", 422),
        ("RateLimited", 429),
        ("LogFull", 503),
        ("CircuitOpen", 503),
        ("DeadlineExceeded", 504),
        ("SomethingNewer", 500),
    ],
)
def test_the_nearest_class_decides_the_status(code: str, status: int) -> None:
    assert status_of(code) == status


def test_a_problem_gives_cause_remedy_and_time_of_the_next_try() -> None:
    error = errors.RateLimited("600 requests", "slow down", retry_after=timedelta(seconds=2.2))
    problem = problem_of(error, "5f2f3c4e-3b1f-4a51-9c1c-0d6b0d1f3a10")
    assert problem["type"] == "urn:headrace:problem:RateLimited"
    assert (problem["detail"], problem["remedy"]) == ("600 requests", "slow down")
    assert (problem["retryable"], problem["retry_after_s"]) == (True, 3)


@pytest.mark.parametrize("kind", problem_kinds(), ids=lambda kind: kind.code)
def test_titles_are_plain_text(kind: ProblemKind) -> None:
    """They come from docstrings, and name no attribute: a problem has other fields."""
    assert "`" not in kind.title + kind.meaning


def test_a_refused_query_keeps_its_own_code() -> None:
    refusal = QueryRefused(Problem(type="UnknownProject", detail="no such", retryable=False))
    problem = problem_of(refusal)
    assert (problem["code"], problem["status"], problem["retryable"]) == (
        "UnknownProject",
        404,
        False,
    )


def test_secrets_in_messages_are_masked() -> None:
    error = errors.Unavailable("postgresql://headrace:hunter2@db:5432/kb does not respond")
    assert "hunter2" not in str(problem_of(error))
