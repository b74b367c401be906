"""``headrace status``: is it well, and where does it stand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from events import Backlog, check_server, read_backlog
from gateway.archive_status import archive_rows, archiver_rows
from gateway.clients import names_of, open_database, open_redis
from gateway.output import print_json, printable, stdout
from gateway.session import JsonOption, run_client
from gateway.stack import configured, stack
from processors.recipes import recipe_of
from runtime.embedded import find_redis
from runtime.settings import Settings
from store.archive import Archive
from store.database import Database
from store.outbox import PostgresOutbox
from store.projects import Projects
from store.statistics import ProjectStatistics
from store.store import Store

__all__ = ["command"]

_MADE_BY = ("generation", "generations", "model", "models", "chunking")
"""What a project's index is made by: a table of its own, or 80 columns would not do."""


def command(json: JsonOption = False) -> None:
    """Show what waits, what is stored, and how fresh it is, per stream and per project."""
    found = run_client(_look)
    if json:
        print_json(found)
    else:
        _print(stdout(), found)


async def _look(settings: Settings) -> dict[str, Any]:
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
        backlog = await read_backlog(redis, names)
        archiver = await archiver_rows(redis, names)
        stored = await _stored(running, database)
    version = ".".join(map(str, facts.version))
    embedded = "" if settings.redis_url else f" ({find_redis().source})"
    return {
        "servers": servers,
        "redis": f"{version}{embedded}",
        "streams": [_stream(one) for one in backlog],
        "archiver": archiver,
        **stored,
    }


async def _stored(settings: Settings, database: Database) -> dict[str, Any]:
    store = Store(database, recipe_of(settings))
    projects = Projects(database)
    archive = Archive(database, projects, settings.archive_location)
    found = await store.statistics()
    return {
        "projects": [await _project(store, one) for one in found],
        "archive": await archive_rows(archive, PostgresOutbox(database, projects), found),
    }


def _stream(backlog: Backlog) -> dict[str, Any]:
    age = backlog.oldest_unacknowledged
    return {
        "topic": backlog.topic.value,
        "partition": backlog.partition,
        "lag": backlog.lag,
        "pending": backlog.pending,
        "oldest_unacknowledged_s": None if age is None else round(age.total_seconds(), 3),
        "dead_letters": backlog.dead_letters,
    }


async def _project(store: Store, statistics: ProjectStatistics) -> dict[str, Any]:
    recipe = (await store.generation(statistics.project)).recipe
    made_by = {"model": recipe.model, "models": dict(recipe.models), "chunking": recipe.chunking}
    return {**dataclasses.asdict(statistics), **made_by}


def _print(console: Console, found: dict[str, Any]) -> None:
    console.print(f"servers: {found['servers']}; Redis {found['redis']}", markup=False)
    console.print()
    console.print(_table(found["streams"]))
    console.print()
    if found["projects"]:
        console.print(_table(found["projects"], leave_out=(*_MADE_BY, "tombstones", "outcomes")))
        console.print()
        chosen = [_picked(row, ("project", *_MADE_BY)) for row in found["projects"]]
        console.print(_table(chosen, leave_out=("models",)))
    else:
        typer.echo("no projects yet: `headrace sync PATH` makes one")
        return
    console.print()
    console.print("archive:")
    console.print(_table(found["archiver"], leave_out=("partition",)))
    console.print()
    console.print(_table(found["archive"], leave_out=("files", "raw_bytes", "whole_from")))


def _picked(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {column: row[column] for column in columns}


def _table(rows: Sequence[dict[str, Any]], leave_out: Sequence[str] = ()) -> Table:
    columns = [column for column in rows[0] if column not in leave_out]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        # a heading's words may stand below each other; a name must be readable
        table.add_column(column.replace("_", " "), no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*(Text(printable(_cell(column, row[column]))) for column in columns))
    return table


def _cell(column: str, value: Any) -> str:
    """What isn't known is shown as unknown, never as 0; nothing to wait for is a dash."""
    if value is None:
        return "unknown" if column == "lag" else "-"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
