"""Errors of the client. They mirror the problems of the gateway.

::

    HeadraceError
    ├── ConfigurationError     no address or API key; or the gateway lacks a setting
    ├── UsageError             the request is impossible (``errors`` lists wrong fields)
    │   ├── NotFound           a document, change or batch that does not exist
    │   │   └── UnknownProject
    │   ├── LimitExceeded      a size or a count is over its limit
    │   └── EventIdReused      an event id that was published with another change
    ├── Unauthenticated        no API key, or one that is not valid
    ├── Forbidden              the API key does not have the right
    ├── Conflict               another operation is in the way
    ├── Unavailable            the gateway or a server behind it can't be reached
    │   ├── DeadlineExceeded   no answer, or no outcome, came in time
    │   ├── RateLimited        the rate of the API key is used up
    │   ├── Busy               too many questions are in flight
    │   └── LogFull            publishing is refused for now
    └── ServerDefect           the gateway failed, or its response can't be read
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

__all__ = [
    "Busy",
    "ConfigurationError",
    "Conflict",
    "DeadlineExceeded",
    "EventIdReused",
    "Forbidden",
    "HeadraceError",
    "LimitExceeded",
    "LogFull",
    "NotFound",
    "RateLimited",
    "ServerDefect",
    "Unauthenticated",
    "Unavailable",
    "UnknownProject",
    "UsageError",
    "error_of_problem",
]


class HeadraceError(Exception):
    """Root of every error that the client raises on purpose.

    Args:
        message: what happened, with values.
        remedy: what a person can do about it; it may be empty.
        problem: the body of the response (RFC 9457); empty if there was no such response.
        request_id: id of the request in the log of the gateway. It is None if nothing was sent.
        retry_after: time after which the same call may succeed. It is None if that is not known.
    """

    retries: bool = False
    """Value of ``retryable`` if the problem has none."""

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        problem: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.problem = dict(problem or {})
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    @property
    def code(self) -> str:
        """Stable name of the kind of problem."""
        return str(self.problem.get("code", type(self).__name__))

    @property
    def retryable(self) -> bool:
        """True if the same call may succeed later."""
        return bool(self.problem.get("retryable", self.retries))


class ConfigurationError(HeadraceError):
    """The address or the API key is missing or wrong, or the gateway lacks a setting."""


class UsageError(HeadraceError):
    """The request is impossible."""

    @property
    def errors(self) -> list[dict[str, str]]:
        """Wrong fields, each with ``pointer`` and ``detail``; empty if no field is named."""
        return list(self.problem.get("errors", ()))


class NotFound(UsageError):
    """The document, change or batch does not exist."""


class UnknownProject(NotFound):
    """No project has this name, or the API key is of another project."""


class LimitExceeded(UsageError):
    """A size or a count exceeds its limit."""


class EventIdReused(UsageError):
    """The event id was published within a day, with another change."""


class Unauthenticated(HeadraceError):
    """The API key is missing, does not exist, is retired or has expired."""


class Forbidden(HeadraceError):
    """The API key does not have the right that the request needs."""


class Conflict(HeadraceError):
    """Another operation on the same object is in the way."""


class Unavailable(HeadraceError):
    """The gateway, or a server behind it, can't be reached."""

    retries = True


class DeadlineExceeded(Unavailable):
    """No answer, or no outcome, came in time."""


class RateLimited(Unavailable):
    """The rate of the API key is used up; ``retry_after`` is the time until it is restored."""


class Busy(Unavailable):
    """Too many questions are in flight."""


class LogFull(Unavailable):
    """Redis is so near its memory limit that publishing is refused."""


class ServerDefect(HeadraceError):
    """The gateway failed because of a defect, or its response can't be read."""


_BY_CODE: Mapping[str, type[HeadraceError]] = {
    error.__name__: error
    for error in (
        Busy,
        ConfigurationError,
        Conflict,
        DeadlineExceeded,
        EventIdReused,
        Forbidden,
        LimitExceeded,
        LogFull,
        NotFound,
        RateLimited,
        Unauthenticated,
        Unavailable,
        UnknownProject,
        UsageError,
    )
}
_BY_STATUS: Mapping[int, type[HeadraceError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: LimitExceeded,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: DeadlineExceeded,
}
_CLIENT_ERRORS = range(400, 500)


def error_of_problem(
    status: int,
    problem: Mapping[str, Any],
    *,
    request_id: str,
    retry_after: timedelta | None,
) -> HeadraceError:
    """Build the error of a response: by the code of its problem, else by its status."""
    usual = UsageError if status in _CLIENT_ERRORS else ServerDefect
    kind = _BY_CODE.get(str(problem.get("code")), _BY_STATUS.get(status, usual))
    return kind(
        str(problem.get("detail") or f"the gateway responded with the status {status}"),
        str(problem.get("remedy", "")),
        problem=problem,
        request_id=request_id,
        retry_after=retry_after,
    )
