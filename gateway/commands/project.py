"""``headrace project``: list, delete and purge projects."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from events.client.client import Client
from gateway.clients import open_database
from gateway.deletion import YesOption, confirm, print_report, run_purge
from gateway.output import print_json, printable, stdout, table
from gateway.servers import require_database, stack
from gateway.session import JsonOption, duration, run_client
from processors.purge.documents import Purge, PurgeReport
from processors.purge.projects import DeletedReport, delete_project, purge_project
from processors.recipes import recipe_of
from processors.wiring.servers import open_servers
from runtime.settings import Settings
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR
from store.purge.projects import DeletedProjects
from store.search.vector_indexes import VectorIndexes
from store.store import Store

__all__ = ["command"]

command = typer.Typer(rich_markup_mode=None)

ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT")]
TimeoutOption = Annotated[float, typer.Option(help="Longest wait for each step, in seconds.")]


@command.command("list")
def list_projects(json: JsonOption = False) -> None:
    """List projects, including deleted ones whose archive still exists."""

    async def main(settings: Settings) -> list[dict[str, Any]]:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running) as database,
        ):
            projects = await Store(database, recipe_of(running)).statistics()
            deleted = await DeletedProjects(database).all()
        return [
            *(_row(live.project, live.documents, live.chunks) for live in projects),
            *(_row(entry.name, deleted_at=entry.deleted_at.isoformat()) for entry in deleted),
        ]

    rows = run_client(main)
    if json:
        for row in rows:
            print_json(row)
    elif rows:
        stdout().print(table(rows))
    else:
        typer.echo("no projects yet: `headrace sync PATH` creates one")


@command.command()
def delete(
    project: ProjectArgument,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a project and its index. Its archive is kept for its retention."""
    patience = duration(timeout)
    confirm(f"project {project} is to be deleted", yes=yes)

    async def main(settings: Settings) -> tuple[DeletedReport, Settings]:
        async with (
            stack(settings, with_worker=False) as running,
            open_servers(require_database(running), OPERATOR) as servers,
        ):
            indexes = _indexes(running, servers.database)
            return await delete_project(servers, indexes, project, patience), running

    report, running = run_client(main)
    days = running.archive_retention.total_seconds() / 86_400
    if json:
        print_json({**asdict(report), "archive_retention_days": days})
        return
    typer.echo(
        printable(
            f"{project} is deleted: {report.rows:,} rows and {report.entries:,} stream entries "
            f"were removed. Its archive is kept for {days:.0f} days, its bytes in the servers' "
            "files until they are overwritten; "
            f"`headrace project purge '{report.name}'` removes both"
        )
    )


@command.command()
def purge(
    project: ProjectArgument,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a project, its archive and all other copies.

    Name a deleted project as `list` prints it. Questions and writes of all projects wait while the
    servers' files are rewritten. Exits 1 if anything remains.
    """
    confirm(f"project {project} is to be removed permanently", yes=yes)

    async def work(running: Settings, tools: Purge, _: Client) -> PurgeReport:
        return await purge_project(tools, _indexes(running, tools.servers.database), project)

    print_report(run_purge(work, duration(timeout)), json=json)


def _indexes(running: Settings, database: Database) -> VectorIndexes:
    owner_url = running.owner_database_url or None
    return VectorIndexes(database, owner_url, running.vector_search.exact_chunks)


def _row(
    project: str,
    documents: int | None = None,
    chunks: int | None = None,
    deleted_at: str | None = None,
) -> dict[str, Any]:
    return {"project": project, "documents": documents, "chunks": chunks, "deleted_at": deleted_at}
