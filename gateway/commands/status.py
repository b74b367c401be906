"""``headrace status``: health, backlog, workers and stored data of a deployment."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console, Group

from events.server.connection import check_server
from gateway.clients import names_of, open_database, open_redis
from gateway.output import print_json, stdout, table
from gateway.servers import configured, stack
from gateway.session import JsonOption, run_client, run_service
from gateway.status import live_view
from gateway.status.live_view import live_tables
from gateway.status.snapshot import archive_rows, archiver_rows, look
from processors.recipes import recipe_of
from runtime.embedded import find_redis
from runtime.errors import UsageError
from runtime.settings import Settings
from store.archive import Archive
from store.outbox import PostgresOutbox
from store.postgres.pool import Database
from store.projects import Projects, unknown_project
from store.statistics import ProjectStatistics
from store.store import Store

__all__ = ["command"]

_SHORTEST_SECONDS = 0.2
_LONGEST_SECONDS = 3600.0

_MADE_BY = ("generation", "generations", "model", "models", "chunking")
"""Columns about the recipe of an index: a second table, because one would exceed 80 columns."""

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
    status = run_client(partial(_look, project=project))
    if json:
        print_json(status)
    else:
        _print(stdout(), status)


async def _look(settings: Settings, project: str | None) -> dict[str, Any]:
    servers = "of the settings" if settings.redis_url else "of a running `headrace up`"
    if configured(settings) is None:
        servers = "embedded, for this command only"
    async with (
        stack(settings, with_worker=False) as running,
        open_redis(running) as redis,
        open_database(running) as database,
    ):
        facts = await check_server(redis)
        names = names_of(running)
        seen = await look(redis, names)
        archiver = await archiver_rows(redis, names)
        stored = await _stored(running, database, project)
    version = ".".join(map(str, facts.version))
    embedded = "" if settings.redis_url else f" ({find_redis().source})"
    return {
        "servers": servers,
        "redis": f"{version}{embedded}",
        **seen,
        "archiver": archiver,
        **stored,
    }


async def _watch(settings: Settings, stop: asyncio.Event, every: timedelta, json: bool) -> None:
    async with stack(settings, with_worker=False) as running, open_redis(running) as redis:
        await check_server(redis)
        console = stdout()
        await live_view.watch(
            partial(look, redis, names_of(running)), every, stop, console, json=json
        )


def _interval(seconds: float) -> timedelta:
    if not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"--interval must be {_SHORTEST_SECONDS:g} to {_LONGEST_SECONDS:g} seconds, "
            f"not {seconds:g}"
        )
    return timedelta(seconds=seconds)


async def _stored(settings: Settings, database: Database, project: str | None) -> dict[str, Any]:
    store = Store(database, recipe_of(settings))
    projects = Projects(database)
    archive = Archive(database, projects, settings.archive_location)
    statistics = await store.statistics(project)
    if project is not None and not statistics:
        raise unknown_project(project)
    return {
        "projects": [await _project(store, row) for row in statistics],
        "archive": await archive_rows(archive, PostgresOutbox(database, projects), statistics),
    }


async def _project(store: Store, statistics: ProjectStatistics) -> dict[str, Any]:
    recipe = (await store.generation(statistics.project)).recipe
    made_by = {"model": recipe.model, "models": dict(recipe.models), "chunking": recipe.chunking}
    return {**dataclasses.asdict(statistics), "coverage": statistics.coverage, **made_by}


def _print(console: Console, found: dict[str, Any]) -> None:
    console.print(f"servers: {found['servers']}; Redis {found['redis']}", markup=False)
    console.print()
    console.print(Group(*live_tables(found)))
    console.print()
    if found["projects"]:
        console.print(table(found["projects"], leave_out=(*_MADE_BY, *_JSON_ONLY)))
        console.print()
        chosen = [_picked(row, ("project", *_MADE_BY)) for row in found["projects"]]
        console.print(table(chosen, leave_out=("models",)))
    else:
        typer.echo("no projects yet: `headrace sync PATH` creates one")
        return
    console.print()
    console.print("archive:")
    console.print(table(found["archiver"], leave_out=("partition",)))
    console.print()
    console.print(table(found["archive"], leave_out=("files", "raw_bytes", "whole_from")))


def _picked(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {column: row[column] for column in columns}
