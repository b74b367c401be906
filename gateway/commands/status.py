"""``headrace status``: health, backlog, workers and stored data of a deployment."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer
from rich.console import Console, Group

from events.server.connection import check_server
from gateway.clients import names_of, open_database, open_redis
from gateway.output import print_json, stdout, table
from gateway.servers import configured, stack
from gateway.session import JsonOption, run_client, run_service
from gateway.status import live_view
from gateway.status.live_view import live_tables
from gateway.status.report import StatusReport, read_status
from gateway.status.snapshot import read_snapshot
from processors.doctor.checks.postgres_server import replica_conditions
from runtime.embedded import find_redis
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]

_SHORTEST_SECONDS = 0.2
_LONGEST_SECONDS = 3600.0

_MADE_BY = ("generation", "generations", "model", "models", "chunking", "examples")
"""Columns about the recipe of an index, and the code examples that its chunking makes: a second
table, because one would exceed 80 columns."""

_CONTEXTS = ("context", "contexts_waiting", "contexts_without")
_JSON_ONLY = ("tombstones", "outcomes", "coverage")


def command(
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Show stored data of this project only.")
    ] = None,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(help="With --watch: seconds between two updates.")
    ] = 2.0,
) -> None:
    """Show backlog, workers, stored data, freshness and warnings.

    --watch redraws a view on a terminal; elsewhere it prints a line (with --json: an object) per
    update.
    """
    if watch:
        if project is not None:
            raise UsageError("--watch does not show projects", "leave out --project")
        every = _interval(interval)
        run_service(lambda settings, stop: _watch(settings, stop, every, json), quiet=True)
        return
    status = run_client(partial(_read, project=project))
    if json:
        print_json(status.to_json())
    else:
        _print(stdout(), status)


async def _read(settings: Settings, project: str | None) -> StatusReport:
    servers = "of the settings" if settings.redis_url else "of a running `headrace up`"
    if configured(settings) is None:
        servers = "embedded, for this command only"
    async with (
        stack(settings, with_worker=False) as running,
        open_redis(running) as redis,
        open_database(running) as database,
    ):
        return await read_status(
            redis,
            database,
            names_of(running),
            running.archive_location,
            servers=servers,
            build="" if settings.redis_url else f" ({find_redis().source})",
            project=project,
            replica=await replica_conditions(running.database_url, running.read_database_url),
        )


async def _watch(settings: Settings, stop: asyncio.Event, every: timedelta, json: bool) -> None:
    async with stack(settings, with_worker=False) as running, open_redis(running) as redis:
        await check_server(redis)
        console = stdout()
        await live_view.watch(
            partial(read_snapshot, redis, names_of(running)), every, stop, console, json=json
        )


def _interval(seconds: float) -> timedelta:
    if not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"--interval must be {_SHORTEST_SECONDS:g} to {_LONGEST_SECONDS:g} seconds, "
            f"not {seconds:g}"
        )
    return timedelta(seconds=seconds)


def _print(console: Console, status: StatusReport) -> None:
    console.print(f"servers: {status.servers}; Redis {status.redis}", markup=False)
    if status.replica:
        console.print(f"replica of Postgres: {status.replica}", markup=False)
    console.print()
    console.print(Group(*live_tables(status.snapshot)))
    console.print()
    if not status.projects:
        typer.echo("no projects yet: `headrace sync PATH` creates one")
        return
    plain = status.to_json()
    console.print(table(plain["projects"], leave_out=(*_MADE_BY, *_CONTEXTS, *_JSON_ONLY)))
    console.print()
    columns = ("project", *_MADE_BY)
    chosen = [{column: row[column] for column in columns} for row in plain["projects"]]
    console.print(table(chosen, leave_out=("models",)))
    written = [row for row in plain["projects"] if row["context"]]
    if written:
        console.print()
        shown = ("project", *_CONTEXTS)
        console.print(table([{column: row[column] for column in shown} for row in written]))
    console.print()
    console.print("archive:")
    console.print(table(plain["archiver"], leave_out=("partition",)))
    console.print()
    console.print(table(plain["archive"], leave_out=("files", "raw_bytes", "whole_from")))
