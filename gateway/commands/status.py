"""``headrace status``: health, backlog, workers and stored data of a deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
from gateway.status import live_view, rows
from gateway.status.live_view import live_tables
from gateway.status.snapshot import archive_rows, archiver_rows, read_snapshot
from processors.recipes import recipe_of
from runtime.embedded import find_redis
from runtime.errors import UsageError
from runtime.settings import Settings
from store.archive import Archive
from store.generations.catalog import Projects, unknown_project
from store.outbox import PostgresOutbox
from store.postgres.pool import Database
from store.statistics import ProjectStatistics
from store.store import Store

__all__ = ["command"]

_SHORTEST_SECONDS = 0.2
_LONGEST_SECONDS = 3600.0

_MADE_BY = ("generation", "generations", "model", "models", "chunking")
"""Columns about the recipe of an index: a second table, because one would exceed 80 columns."""

_JSON_ONLY = ("tombstones", "outcomes", "coverage")


@dataclass(frozen=True)
class _Project(ProjectStatistics):
    """Counts of a project, and the recipe of its index."""

    model: str
    models: Mapping[str, str]
    chunking: str


@dataclass(frozen=True)
class _Status:
    servers: str
    redis: str
    snapshot: rows.Snapshot
    archiver: Sequence[Mapping[str, Any]]
    projects: Sequence[_Project]
    archive: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        for row, project in zip(plain["projects"], self.projects, strict=True):
            row["coverage"] = project.coverage
        del plain["snapshot"]
        return {**plain, **self.snapshot.to_json()}


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


async def _read(settings: Settings, project: str | None) -> _Status:
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
        snapshot = await read_snapshot(redis, names)
        archiver = await archiver_rows(redis, names)
        stored = await _stored(running, database, project)
    version = ".".join(map(str, facts.version))
    embedded = "" if settings.redis_url else f" ({find_redis().source})"
    return _Status(servers, f"{version}{embedded}", snapshot, archiver, *stored)


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


async def _stored(
    settings: Settings, database: Database, project: str | None
) -> tuple[list[_Project], list[dict[str, Any]]]:
    store = Store(database, recipe_of(settings))
    projects = Projects(database)
    archive = Archive(database, projects, settings.archive_location)
    statistics = await store.statistics(project)
    if project is not None and not statistics:
        raise unknown_project(project)
    archives = await archive_rows(archive, PostgresOutbox(database, projects), statistics)
    return [await _project(store, counts) for counts in statistics], archives


async def _project(store: Store, counts: ProjectStatistics) -> _Project:
    recipe = (await store.generation(counts.project)).recipe
    models = dict(recipe.models)
    return _Project(**asdict(counts), model=recipe.model, models=models, chunking=recipe.chunking)


def _print(console: Console, status: _Status) -> None:
    console.print(f"servers: {status.servers}; Redis {status.redis}", markup=False)
    console.print()
    console.print(Group(*live_tables(status.snapshot)))
    console.print()
    if not status.projects:
        typer.echo("no projects yet: `headrace sync PATH` creates one")
        return
    plain = status.to_json()
    console.print(table(plain["projects"], leave_out=(*_MADE_BY, *_JSON_ONLY)))
    console.print()
    columns = ("project", *_MADE_BY)
    chosen = [{column: row[column] for column in columns} for row in plain["projects"]]
    console.print(table(chosen, leave_out=("models",)))
    console.print()
    console.print("archive:")
    console.print(table(plain["archiver"], leave_out=("partition",)))
    console.print()
    console.print(table(plain["archive"], leave_out=("files", "raw_bytes", "whole_from")))
