"""Attempts of one call: their headers, their time, and the reading of the response."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib import import_module
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

import httpx2
import stamina
from pydantic import ValidationError
from stamina import Attempt

from headrace_client.calls import Call
from headrace_client.errors import HeadraceError, ServerDefect, Unavailable, error_of_problem

__all__ = ["ATTEMPT", "DEADLINE", "Exchange", "Patience"]

Result = TypeVar("Result")

DEADLINE = timedelta(seconds=30)
ATTEMPT = timedelta(seconds=10)
_MARGIN = timedelta(seconds=5)
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0
_OK = range(200, 300)
_RETRIED = frozenset({429, 502, 503, 504})
_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})


@dataclass(frozen=True, slots=True)
class Patience:
    """Time for all attempts of a call, and for one attempt.

    Both are extended for a call whose response the gateway may delay.
    """

    deadline: timedelta = DEADLINE
    attempt: timedelta = ATTEMPT


class Attempts(Protocol):
    """Attempts of a call; each is a context that handles the error of a failed attempt."""

    def __iter__(self) -> Iterator[Attempt]:
        """Wait by blocking between attempts."""

    def __aiter__(self) -> AsyncIterator[Attempt]:
        """Wait in the event loop between attempts."""


class Exchange(Generic[Result]):
    """A call on its way: every attempt has the same body and the same request id."""

    def __init__(self, call: Call[Result], patience: Patience) -> None:
        self._call = call
        self.request_id = str(uuid4())
        needed = call.takes + _MARGIN
        self._attempt_s = max(patience.attempt, needed).total_seconds()
        self._deadline_s = max(patience.deadline, needed).total_seconds()
        self._ends_at = monotonic() + self._deadline_s
        # a wait must end before the deadline, also if the deadline is short
        self._longest_wait_s = min(_LONGEST_WAIT_S, self._deadline_s / 10)

    def attempts(self) -> Attempts:
        """Return the attempts, to be iterated with ``for`` or ``async for``."""
        return stamina.retry_context(
            on=self._wait_before_retry,
            attempts=None,
            timeout=self._deadline_s,
            wait_initial=min(_FIRST_WAIT_S, self._longest_wait_s),
            wait_max=self._longest_wait_s,
            wait_jitter=self._longest_wait_s / 4,
        )

    def request(self) -> dict[str, Any]:
        """Return the arguments of the next request."""
        headers = {**_trace_headers(), **self._call.headers, "X-Request-Id": self.request_id}
        if self._call.body is not None:
            headers["Content-Type"] = self._call.media_type
        return {
            "method": self._call.method,
            "url": self._call.path,
            "params": self._call.params,
            "content": self._call.body,
            "headers": headers,
            "timeout": max(0.001, min(self._attempt_s, self._ends_at - monotonic())),
        }

    def result(self, response: httpx2.Response) -> Result:
        """Read a response.

        Raises:
            HeadraceError: the response is a problem, or can't be read.
        """
        request_id = response.headers.get("x-request-id", self.request_id)
        if response.status_code not in _OK:
            raise error_of_problem(
                response.status_code,
                _problem(response),
                request_id=request_id,
                retry_after=_retry_after(response.headers.get("retry-after")),
            )
        try:
            return self._call.parse(response)
        except ValueError as error:
            raise ServerDefect(
                f"the response of {self._call.path} can't be read: {_first_line(error)}",
                "check that HEADRACE_URL is the address of a gateway",
                request_id=request_id,
            ) from error

    def unreachable(self, error: httpx2.RequestError) -> HeadraceError:
        """Describe a failure of the connection."""
        return Unavailable(
            f"the gateway does not respond: {str(error) or type(error).__name__}",
            "check HEADRACE_URL, and that `headrace serve` or `headrace up` runs there",
            request_id=self.request_id,
        )

    def _wait_before_retry(self, error: Exception) -> bool | float:
        """Return whether to retry, or the seconds to wait before it."""
        if not isinstance(error, HeadraceError) or not error.retryable:
            return False
        if int(error.problem.get("status", 503)) not in _RETRIED:
            return False
        left = self._ends_at - monotonic()
        if error.retry_after is not None and error.retry_after > timedelta():
            wait = error.retry_after.total_seconds()
            return wait if wait < left else False
        return left > self._longest_wait_s


def _first_line(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return error.errors()[0]["msg"]
    return str(error)[:200]


def _problem(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    problem = problem if isinstance(problem, dict) else {}
    return problem | {"status": response.status_code}


def _retry_after(header: str | None) -> timedelta | None:
    """Parse the header: seconds, or a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
        return timedelta(seconds=seconds) if math.isfinite(seconds) else None
    except (ValueError, OverflowError):
        pass
    try:
        return parsedate_to_datetime(header) - datetime.now(UTC)
    except (ValueError, TypeError):
        return None


def _trace_headers() -> dict[str, str]:
    """Return the trace context of the current span, if the OpenTelemetry API is installed."""
    headers: dict[str, str] = {}
    try:
        propagation = import_module("opentelemetry.trace.propagation.tracecontext")
    except ImportError:
        return headers
    propagation.TraceContextTextMapPropagator().inject(headers)
    return {name: value for name, value in headers.items() if name in _TRACE_HEADERS}
