"""``headrace up``: everything in one process tree."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from gateway.clients import open_database
from gateway.output import stderr
from gateway.running import announced, find_running
from gateway.session import run_service
from gateway.stack import own_servers, require_database
from gateway.workers import worker
from runtime.child import ChildProcess
from runtime.errors import ConfigurationError, UsageError
from runtime.settings import Settings

__all__ = ["command"]

_WATCH_SECONDS = 0.2


def command(
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
) -> None:
    """Start servers, migrate, start workers; run until Ctrl-C.

    Servers named by HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL are used; others are started
    under HEADRACE_HOME. Other commands find them there by themselves.
    """
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")
    run_service(lambda settings, stop: _up(settings, stop, workers))


async def _up(settings: Settings, stop: asyncio.Event, count: int) -> None:
    if find_running(settings) is not None:
        raise UsageError(f"`headrace up` runs already with {settings.home_directory}")
    async with own_servers(settings) as own, AsyncExitStack() as exits:
        require_database(own)
        await _check_deployment(own)
        children = [
            await exits.enter_async_context(worker(own, workers=count)) for _ in range(count)
        ]
        exits.enter_context(announced(own))
        stderr().print(f"headrace is up ({own.home_directory}); Ctrl-C ends it")
        if not settings.redis_url:
            stderr().print(f"other programs publish and ask at {own.redis_url}")
        await _watch(children, stop)
        stderr().print("headrace is going down")


async def _check_deployment(settings: Settings) -> None:
    """Raises ConfigurationError where Redis and Postgres are not of one deployment."""
    async with open_database(settings):
        return


async def _watch(children: list[ChildProcess], stop: asyncio.Event) -> None:
    """Raises ConfigurationError when a worker ends before it is asked to."""
    while not stop.is_set():
        if not all(child.is_running for child in children):
            raise ConfigurationError("a worker ended by itself; its last lines are above")
        try:
            async with asyncio.timeout(_WATCH_SECONDS):
                await stop.wait()
        except TimeoutError:
            continue
