"""``headrace up``, ``open`` and ``down``: servers and workers in one process tree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from gateway.auth.local_key import login_link
from gateway.clients import names_of, open_database
from gateway.output import printable, stderr
from gateway.processes.background import LogTail, bring_down, detach
from gateway.processes.command_server import CommandServer, command_server
from gateway.processes.idleness import parse_idle_time, wait_until_idle
from gateway.processes.supervisor import Supervisor
from gateway.servers import (
    GATEWAY_PORT,
    StartedServers,
    announce,
    announced_gateway,
    find_running,
    owner_lock,
    prepare_home,
    require_database,
    start_servers,
    supervised_gateway,
    supervised_workers,
)
from gateway.session import run_client, run_service, unless_stopped
from runtime.errors import UsageError
from runtime.intervals import until_tick
from runtime.settings import Settings
from runtime.worker_process import ServiceProcess

__all__ = ["command", "down", "open_pages"]

_ECHO_EVERY = timedelta(seconds=1)
_LONGEST_ECHO_PAUSE = timedelta(seconds=4)
"""A log without new lines is read less often."""


def command(
    workers: Annotated[int, typer.Option(help="Number of worker processes.")] = 1,
    detached: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help="Return when everything runs; `headrace down` stops it."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port of the gateway; if it is in use, another is chosen.")
    ] = GATEWAY_PORT,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Run no gateway.")] = False,
    until_idle: Annotated[
        str | None,
        typer.Option(
            help="End when nothing was asked, published or pending for this long, e.g. PT30M."
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Don't print the workers' logs; they stay in their files."
        ),
    ] = False,
) -> None:
    """Start servers, migrate the database, start workers and a gateway; run until Ctrl-C.

    Servers named by HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL are used; others are started
    under HEADRACE_HOME, where other commands find them. Processes that end are restarted.
    """
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")
    idle = parse_idle_time(until_idle) if until_idle is not None else None
    if detached:
        gateway = ["--no-serve"] if no_serve else ["--port", str(port)]
        ending = ["--until-idle", until_idle] if until_idle is not None else []
        options = ["--workers", str(workers), *gateway, *ending]
        run_client(lambda settings: detach(settings, options))
    else:
        gateway_port = None if no_serve else port
        with command_server() as commands:
            run_service(
                lambda settings, stop: _up(
                    settings, stop, workers, gateway_port, quiet, idle, commands
                )
            )


def open_pages() -> None:
    """Print a link that opens the pages of a running `up`, once, within five minutes."""
    typer.echo(run_client(_link))


def down() -> None:
    """Stop `headrace up` with its servers and workers; published data is kept."""
    ended = run_client(bring_down)
    stderr().print("headrace is down" if ended else "`headrace up` does not run")


async def _link(settings: Settings) -> str:
    running, address = find_running(settings), announced_gateway(settings)
    if running is None or address is None:
        raise UsageError(
            f"no `headrace up` with a gateway runs in {settings.home_directory}",
            "start one, without --no-serve",
        )
    return await login_link(running, address)


async def _up(
    settings: Settings,
    stop: asyncio.Event,
    count: int,
    port: int | None,
    quiet: bool,
    idle: timedelta | None,
    commands: CommandServer,
) -> None:
    with _home_lock(prepare_home(settings)):
        commands.listen(settings.home_directory)
        async with AsyncExitStack() as exits:
            servers, processes = await unless_stopped(
                _start(settings, count, port, quiet, commands, exits), stop
            )
            started_settings = servers.settings
            address = "" if port is None else processes[-1].announcement
            _say(f"headrace is up ({started_settings.home_directory}); Ctrl-C stops it")
            if not settings.redis_url:
                _say(f"other programs can publish and ask at {started_settings.redis_url}")
            if address:
                _say(f"the gateway listens at {address}; its pages open with this link, once:")
                _say(await login_link(started_settings, address))
            exits.enter_context(announce(started_settings, address))
            if idle is not None:
                ending = asyncio.create_task(_end_when_idle(started_settings, idle, stop))
                exits.callback(ending.cancel)
            await Supervisor(servers.embedded, processes, _say).run(stop)
            _say("headrace is stopping")


async def _end_when_idle(settings: Settings, idle: timedelta, stop: asyncio.Event) -> None:
    await wait_until_idle(settings, names_of(settings), idle)
    _say(f"nothing was asked, published or pending for {idle}")
    stop.set()


@contextmanager
def _home_lock(home: Path) -> Iterator[None]:
    """Hold the lock of the home; raise UsageError if another ``up`` holds it."""
    lock = owner_lock(home)
    owner = lock.owner()
    if owner is not None:
        raise UsageError(
            f"`headrace up` runs already in {home}, process {owner}", "stop it with `headrace down`"
        )
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


async def _start(
    settings: Settings,
    count: int,
    port: int | None,
    quiet: bool,
    commands: CommandServer,
    exits: AsyncExitStack,
) -> tuple[StartedServers, list[ServiceProcess]]:
    servers = await exits.enter_async_context(start_servers(settings, commands.start))
    processes: list[ServiceProcess] = [
        *supervised_workers(require_database(servers.settings), count, commands.start)
    ]
    async with open_database(servers.settings):
        pass  # raises an error if the servers belong to two deployments
    if not quiet:
        tails = [LogTail(process.log, from_end=True) for process in processes if process.log]
        echo = asyncio.create_task(_echo(tails))
        exits.push_async_callback(_end_echo, echo, tails)
    if port is not None:
        processes.append(supervised_gateway(servers.settings, port, commands.start))
    for process in processes:
        exits.push_async_callback(process.stop)
    # wait for all, so that none is still starting when this function returns or raises
    started = await asyncio.gather(
        *(process.start() for process in processes), return_exceptions=True
    )
    for failure in started:
        if failure is not None:
            raise failure
    return servers, processes


async def _echo(tails: Sequence[LogTail]) -> None:
    pause = _ECHO_EVERY
    while True:
        pause = _ECHO_EVERY if _print_new(tails) else min(2 * pause, _LONGEST_ECHO_PAUSE)
        await asyncio.sleep(until_tick(pause).total_seconds())


async def _end_echo(echo: asyncio.Task[None], tails: Sequence[LogTail]) -> None:
    echo.cancel()
    _print_new(tails)


def _print_new(tails: Sequence[LogTail]) -> int:
    lines = [line for tail in tails for line in tail.new()]
    for line in lines:
        _say(line)
    return len(lines)


def _say(line: str) -> None:
    stderr().print(printable(line), markup=False)
