"""Times between the attempts of a call."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import islice

import httpx2
import pytest

from headrace_client.calls import projects
from headrace_client.errors import RateLimited, Unavailable
from headrace_client.exchange import Exchange, Patience

PATIENCE = Patience(timedelta(seconds=30), timedelta(seconds=10))


def retry_after(header: str) -> timedelta | None:
    exchange = Exchange(projects(), PATIENCE)
    with pytest.raises(RateLimited) as error:
        exchange.result(httpx2.Response(429, headers={"Retry-After": header}))
    return error.value.retry_after


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("0", 0.0)])
def test_a_wait_is_given_in_seconds(header: str, seconds: float) -> None:
    assert retry_after(header) == timedelta(seconds=seconds)


def test_a_wait_is_given_by_a_date() -> None:
    wait = retry_after(format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True))
    assert wait is not None
    assert timedelta(seconds=50) < wait <= timedelta(minutes=1)


@pytest.mark.parametrize("header", ["soon", "inf", "nan", "1e400", ""])
def test_an_unreadable_wait_is_not_known(header: str) -> None:
    assert retry_after(header) is None


@pytest.mark.parametrize("header", ["0", "Sat, 28 Nov 2020 12:00:00 GMT"])
def test_a_wait_of_no_time_is_no_reason_to_repeat_without_pause(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is behind makes a date one of the past."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    exchange = Exchange(projects(), PATIENCE)
    for attempt in islice(exchange.attempts(), 3):
        with attempt:
            exchange.result(httpx2.Response(429, headers={"Retry-After": header}))
    assert len(waits) >= 2
    assert min(waits) > 0


def test_an_attempt_ends_before_the_call() -> None:
    request = Exchange(projects(), Patience(timedelta(seconds=6), timedelta(seconds=60))).request()
    assert 0 < request["timeout"] <= 60
    short = Exchange(projects(), Patience(timedelta(seconds=6), timedelta(seconds=1))).request()
    assert short["timeout"] == 5


def test_every_attempt_has_the_same_id() -> None:
    exchange = Exchange(projects(), PATIENCE)
    ids = {exchange.request()["headers"]["X-Request-Id"] for _ in range(3)}
    assert ids == {exchange.request_id}


def test_a_connection_that_fails_is_retried() -> None:
    failure = Exchange(projects(), PATIENCE).unreachable(httpx2.ConnectError("refused"))
    assert isinstance(failure, Unavailable)
    assert failure.retryable
    assert "refused" in str(failure)
