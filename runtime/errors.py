"""The tree of all errors that Headrace raises.

::

    HeadraceError
    ├── Retryable            may succeed later: a change stays pending, a question gets query.failed
    │   ├── Unavailable      Redis, Postgres or a model can't be reached; never dead-lettered for it
    │   │   ├── CircuitOpen  a model failed so often that no request is sent (``retry_after``)
    │   │   ├── DeadlineExceeded
    │   │   └── WorkerEnding this process ends; its successor continues
    │   ├── SourceBusy       another sync publishes the source
    │   ├── SourceLost       another sync has taken the source over
    │   ├── RateLimited      a rate limit was reached (``retry_after``)
    │   ├── Busy             as many requests are in flight as this process allows
    │   └── LogFull          Redis is near its memory limit: publishing is refused for now
    ├── Poison               a retry can't succeed: the event is dead-lettered at once
    │   ├── MalformedEvent   the bytes are not a valid event of a known type
    │   ├── SignatureRefused a change without a valid signature by a key of its project
    │   ├── SourceConflict   a change from one source to a document of another
    │   ├── EventIdReused    an event id that was published with another change
    │   ├── PreconditionFailed   the stored document is not the one that the change expects
    │   ├── UnsupportedContent
    │   └── LimitExceeded    a size or a count is over its limit
    ├── AccessRefused        the caller may not do this
    │   ├── Unauthenticated  no API key, or one that does not exist, is retired or has expired
    │   └── Forbidden        the API key does not have the right
    └── OperatorError        a person must act; the command line prints it and exits 1
        ├── ConfigurationError
        │   └── UnknownSetting   a variable HEADRACE_… that is not a setting: exit code 2
        ├── Conflict         another replay, drop or lock is in the way
        └── UsageError       the request is impossible
            └── NotFound     a document, letter, generation … that does not exist
                └── UnknownProject
"""

from __future__ import annotations

import copyreg
from datetime import datetime, timedelta
from typing import Any

from runtime.secrets import masked

__all__ = [
    "AccessRefused",
    "Busy",
    "CircuitOpen",
    "ConfigurationError",
    "Conflict",
    "Damaged",
    "DeadlineExceeded",
    "Encrypted",
    "EventIdReused",
    "Forbidden",
    "HeadraceError",
    "LegacyFormat",
    "LimitExceeded",
    "LogFull",
    "MalformedEvent",
    "NoTextLayer",
    "NotFound",
    "OperatorError",
    "Poison",
    "PreconditionFailed",
    "RateLimited",
    "Retryable",
    "SignatureRefused",
    "SourceBusy",
    "SourceConflict",
    "SourceLost",
    "Unauthenticated",
    "Unavailable",
    "UnknownProject",
    "UnknownSetting",
    "UnsupportedContent",
    "UsageError",
    "WorkerEnding",
]


class HeadraceError(Exception):
    """Root of every error that Headrace raises on purpose.

    Args:
        message: sentence without a full stop: what happened, with values. It often quotes a server
            or a library, so secrets are masked when it is read.
        remedy: what a person can do about it, without a full stop. It may be empty.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self._remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without ``__init__``, whose arguments differ from class to class."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def message(self) -> str:
        """Description of what happened; ``str`` adds the remedy, in one line."""
        return masked(super().__str__())

    @property
    def remedy(self) -> str:
        """Advice for a person, or ''."""
        return masked(self._remedy)

    @property
    def code(self) -> str:
        """Stable name of the kind of problem, used in events and logs."""
        return type(self).__name__


class Retryable(HeadraceError):
    """The same work may succeed later."""

    retry_after: timedelta | None
    """Time until then, if it is known."""

    def __init__(
        self, message: str, remedy: str = "", *, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.retry_after = retry_after


class Unavailable(Retryable):
    """A server or a model can't be reached."""


class CircuitOpen(Unavailable):
    """A model failed so often that it receives only an occasional probe."""


class DeadlineExceeded(Unavailable):
    """No reply arrived before the deadline of the request."""


class WorkerEnding(Unavailable):
    """This process is shutting down; work that only waits is left to another process."""


class RateLimited(Retryable):
    """A model asked for fewer requests, or a limit of the settings or of an API key is used up."""


class Busy(Retryable):
    """This process or this API key has its maximum number of requests in flight."""


class LogFull(Retryable):
    """Redis is so near its memory limit that publishing is refused."""


class SourceBusy(Retryable):
    """Another sync has the lease of the source."""

    holder: str | None
    until: datetime | None
    """The earliest end of the lease."""

    def __init__(
        self, message: str, remedy: str, *, holder: str | None, until: datetime | None
    ) -> None:
        super().__init__(message, remedy)
        self.holder = holder
        self.until = until


class SourceLost(Retryable):
    """The lease of the source expired, and another sync has taken it."""


class Poison(HeadraceError):
    """A retry can't succeed."""


class MalformedEvent(Poison):
    """The bytes are not a valid event of a known type."""


class SignatureRefused(Poison):
    """The project accepts signed changes only, and this change has no valid signature."""


class SourceConflict(Poison):
    """A change from one source to an existing document of another."""


class OutdatedChange(Poison):
    """The document has no row, and the change is older than tombstones that have expired."""


class EventIdReused(Poison):
    """An event id was published within a day, with another change."""

    event_ids: tuple[str, ...]
    """The ids that were refused."""

    def __init__(self, message: str, remedy: str = "", *, event_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.event_ids = event_ids


class PreconditionFailed(Poison):
    """The stored document is not the one that the change expects to replace."""


class UnsupportedContent(Poison):
    """This content can't be turned into chunks."""


class Encrypted(UnsupportedContent):
    """The document is protected by a password."""


class NoTextLayer(UnsupportedContent):
    """The document has images of pages, and no text."""


class LegacyFormat(UnsupportedContent):
    """The document is in a format that is no longer read."""


class Damaged(UnsupportedContent):
    """The bytes do not have the format that their type or name announces."""


class LimitExceeded(Poison):
    """A size or a count exceeds its limit."""


class AccessRefused(HeadraceError):
    """The caller may not do this."""


class Unauthenticated(AccessRefused):
    """The request has no API key, or one that does not exist, is retired or has expired.

    Or it is the delivery of a webhook without a valid signature.
    """


class Forbidden(AccessRefused):
    """The API key does not have the right that the request needs."""


class OperatorError(HeadraceError):
    """A person has to act before this can work."""


class ConfigurationError(OperatorError):
    """Settings, versions or roles don't match."""


class UnknownSetting(ConfigurationError):
    """An environment variable has the prefix of Headrace but is not a setting."""


class Conflict(OperatorError):
    """Another operation on the same object is in the way."""


class UsageError(OperatorError):
    """The request is impossible."""


class NotFound(UsageError):
    """The document, letter or generation that the request names does not exist."""


class UnknownProject(NotFound):
    """No project has this name, or the caller may not see it."""
