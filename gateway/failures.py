"""Error reports for people: one line with the error and its remedy."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.util import find_spec

from runtime.errors import HeadraceError, UnknownSetting
from runtime.secrets import masked
from runtime.terminal import printable

__all__ = ["INTERRUPTED", "one_line", "report"]

INTERRUPTED = 130
WRONG_USAGE = 2
_LONGEST = 500
_INSTALL = "pip install 'headrace[worker]'"


def report(error: BaseException) -> int:
    """Print the error to stderr as one line, and return its exit code."""
    if os.environ.get("HEADRACE_LOG_LEVEL", "").lower() == "debug":
        print(printable(masked("".join(traceback.format_exception(error)))), file=sys.stderr)  # noqa: T201
    cause = _first_cause(error)
    if isinstance(cause, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(cause, BrokenPipeError):
        _drop_output()
        return 1
    if isinstance(cause, OSError) and cause.filename is None and not _can_be_written():
        _drop_output()
    print(f"headrace: {one_line(cause)}", file=sys.stderr)  # noqa: T201
    return WRONG_USAGE if isinstance(cause, UnknownSetting) else 1


def _can_be_written() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """Redirect stdout to the null device.

    The rest of the output can't be written, and Python would report that again when it exits.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: BaseException) -> str:
    """Describe an error in one line, of which a long message is cut but not its remedy.

    The base install has only the client, so there a missing module leads to the extra with the
    rest. Any other error that is not a HeadraceError is a defect: the line names how to get a
    traceback.
    """
    if isinstance(error, HeadraceError):
        return "; ".join(filter(None, (_cut(error.message), _cut(error.remedy))))
    kind, text = type(error).__name__, _cut(str(error))
    if isinstance(error, ModuleNotFoundError) and find_spec("typer") is None:
        return f"{text}; install the command line and the workers: {_INSTALL}"
    return f"unexpected {kind}: {text or 'no message'}; HEADRACE_LOG_LEVEL=debug shows where"


def _cut(text: str) -> str:
    return printable(masked(" ".join(text.split())))[:_LONGEST]


def _first_cause(error: BaseException) -> BaseException:
    """Find the error that ended a group of concurrent tasks.

    The first failure cancels the other tasks, so a HeadraceError comes before other members.
    """
    while isinstance(error, BaseExceptionGroup):
        members: tuple[BaseException, ...] = error.exceptions
        error = next(
            (member for member in members if isinstance(member, HeadraceError)), members[0]
        )
    return error
