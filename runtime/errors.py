"""What can go wrong, as one tree.

::

    HeadraceError
    ├── Retryable            the same event may succeed later: it stays pending
    │   ├── Unavailable      Redis, Postgres or a model can't be reached; never dead-lettered for it
    │   │   ├── CircuitOpen  a model failed so often that it isn't even asked (``retry_after``)
    │   │   └── WorkerEnding this process ends; its successor goes on
    │   ├── SourceBusy       another sync publishes the source
    │   ├── SourceLost       another sync has taken the source over
    │   ├── RateLimited      a model asked us to wait (``retry_after``)
    │   └── LogFull          Redis is near its memory limit: publishing is refused for now
    ├── Poison               trying again can't help: straight to the dead letters
    │   ├── MalformedEvent   the bytes are not an event that we know
    │   ├── SignatureRefused a change without a signature by a key of its project
    │   ├── SourceConflict   a change of one source to a document of another
    │   ├── UnsupportedContent
    │   └── LimitExceeded    a size or a count is over its limit
    └── OperatorError        a person must act; the command line prints it and exits 1
        ├── ConfigurationError
        │   └── UnknownSetting   a variable HEADRACE_… that is no setting: exit code 2
        └── UsageError       what was asked for can't be (unknown project, no such path)
"""

from __future__ import annotations

from datetime import datetime, timedelta

from runtime.secrets import masked

__all__ = [
    "CircuitOpen",
    "ConfigurationError",
    "HeadraceError",
    "LimitExceeded",
    "LogFull",
    "MalformedEvent",
    "OperatorError",
    "Poison",
    "RateLimited",
    "Retryable",
    "SignatureRefused",
    "SourceBusy",
    "SourceConflict",
    "SourceLost",
    "Unavailable",
    "UnknownSetting",
    "UnsupportedContent",
    "UsageError",
    "WorkerEnding",
]


class HeadraceError(Exception):
    """Root of every error that Headrace raises on purpose.

    The message is one line for a person and names the cure where there is one. It often quotes what
    a server or a library said, so that secrets are masked in it.
    """

    def __str__(self) -> str:
        return masked(super().__str__())

    @property
    def code(self) -> str:
        """Stable name of the kind of problem, as it appears in events and logs."""
        return type(self).__name__


class Retryable(HeadraceError):
    """The same work may succeed later; after ``retry_after``, where that is known."""

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(Retryable):
    """A server or a model can't be reached."""


class CircuitOpen(Unavailable):
    """A model failed so often that only a probe asks it, now and then."""


class WorkerEnding(Unavailable):
    """This process was asked to end: what only waits is left to another one."""


class RateLimited(Retryable):
    """A model asked us to slow down, or would, by the limits in the settings."""


class LogFull(Retryable):
    """Redis is so near to its memory limit that publishing is refused."""


class SourceBusy(Retryable):
    """Another sync holds the lease of the source: ``holder``, until ``until`` if it ends there."""

    def __init__(self, message: str, holder: str | None, until: datetime | None) -> None:
        super().__init__(message)
        self.holder = holder
        self.until = until


class SourceLost(Retryable):
    """The lease of the source ran out, and another sync has taken it."""


class Poison(HeadraceError):
    """Trying again can't help."""


class MalformedEvent(Poison):
    """The bytes are not an event that we know."""


class SignatureRefused(Poison):
    """The project takes signed changes only, and this one isn't, or not by a key that counts."""


class SourceConflict(Poison):
    """A change of one source to a living document of another."""


class UnsupportedContent(Poison):
    """No way to turn this content into chunks."""


class LimitExceeded(Poison):
    """A size or a count is over its limit."""


class OperatorError(HeadraceError):
    """A person has to act before this can work."""


class ConfigurationError(OperatorError):
    """Settings, versions or roles don't fit."""


class UnknownSetting(ConfigurationError):
    """A variable of the environment has our prefix, and is no setting."""


class UsageError(OperatorError):
    """What was asked for can't be."""
