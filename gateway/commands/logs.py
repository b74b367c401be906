"""``headrace logs``: logs of the servers and workers of ``up``, and of git hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from gateway.output import printable
from gateway.processes.background import LogTail, log_files
from gateway.session import run_service
from runtime.errors import UsageError
from runtime.lifespan import wait_or_stop
from runtime.secrets import masked
from runtime.settings import Settings

__all__ = ["Part", "command"]

_FOLLOW_INTERVAL = timedelta(seconds=0.3)


class Part(StrEnum):
    """Processes that have a log."""

    WORKER = "worker"
    GATEWAY = "gateway"
    REDIS = "redis"
    POSTGRES = "postgres"
    UP = "up"
    HOOK = "hook"


def command(
    part: Annotated[Part | None, typer.Argument(help="Show this log only; default: all.")] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new lines as they are logged, until Ctrl-C."),
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of last lines of each log.")
    ] = 50,
) -> None:
    """Print the last log lines of the servers, workers and git hooks under HEADRACE_HOME."""
    run_service(
        lambda settings, stop: _show(settings, stop, part, lines, follow=follow), quiet=True
    )


async def _show(
    settings: Settings, stop: asyncio.Event, part: Part | None, count: int, *, follow: bool
) -> None:
    files = log_files(settings.home_directory, part)
    if not files:
        raise UsageError(
            f"no log of {part or 'any process'} under {settings.home_directory}",
            "start `headrace up`, or set HEADRACE_HOME to the directory of a running one",
        )
    tails = {name: LogTail(path) for name, path in files.items()}
    for name, tail in tails.items():
        _print(name, tail.last(count), several=len(tails) > 1)
    while follow and not stop.is_set():
        _print_new(tails)
        await wait_or_stop(stop, _FOLLOW_INTERVAL)


def _print_new(tails: Mapping[str, LogTail]) -> None:
    for name, tail in tails.items():
        _print(name, tail.new(), several=len(tails) > 1)


def _print(name: str, lines: Sequence[str], *, several: bool) -> None:
    for line in lines:
        text = printable(masked(line))
        typer.echo(f"{name} | {text}" if several else text)
