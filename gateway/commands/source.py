"""``headrace source``: list and delete the sources of a project."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

from events.client.operator_client import OperatorClient
from gateway.clients import check_signing_key, open_client, open_database
from gateway.deletion import YesOption, confirm, delete_documents, find_source
from gateway.output import print_json, printable, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, ProjectOption, duration, run_client
from gateway.sync.followers import follower
from processors.recipes import recipe_of
from runtime.errors import UsageError
from runtime.settings import Settings
from store.generations.catalog import Projects
from store.postgres.roles import OPERATOR
from store.sources import RegisteredSource, Sources
from store.views.batches import Batches
from store.views.listing import Listing, SourceRow

__all__ = ["command"]

command = typer.Typer(rich_markup_mode=None)

AgentOption = Annotated[
    str | None,
    typer.Option("--agent", "--user", help="Also look among the private sources of this agent."),
]


@command.command("list")
def list_sources(
    project: ProjectOption = "default", agent: AgentOption = None, json: JsonOption = False
) -> None:
    """List the sources of a project with the figures of their last sync.

    `next` names the next cause of a sync with this HEADRACE_HOME: a running watch, git hooks,
    or a webhook of the settings.
    """

    async def main(settings: Settings) -> list[dict[str, Any]]:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running) as database,
        ):
            batches = Batches(database, Projects(database))
            return [
                {
                    **_row(source, await _waiting(batches, project, source)),
                    "next": follower(settings, project, source.kind, source.location),
                }
                for source in await Listing(database).sources(project, agent)
            ]

    rows = run_client(main)
    if json:
        for row in rows:
            print_json(row)
    elif rows:
        hidden = ["id", "batch", "skipped_by_reason"]
        hidden += [name for name in ("agent", "base") if not any(row[name] for row in rows)]
        stdout().print(table([*map(_with_reasons, rows)], leave_out=hidden))
    else:
        typer.echo(f"{project} has no sources: `headrace sync PATH` creates one")


@command.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name from `list`.")],
    project: ProjectOption = "default",
    agent: AgentOption = None,
    timeout: Annotated[float, typer.Option(help="Longest wait, in seconds.")] = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a source and all its documents.

    The deletes are published as changes; then the source is removed.
    """
    patience = duration(timeout)

    async def main(settings: Settings) -> int:
        async with (
            stack(settings) as running,
            open_database(running, OPERATOR) as database,
            open_client(running) as client,
        ):
            await check_signing_key(running, project)
            sources = Sources(database, Projects(database, recipe_of(running)))
            source = await find_source(sources, project, agent or "", name)
            await _check_overlays(sources, source)
            documents = f"{source.documents:,} document{'s' * (source.documents != 1)}"
            subject = f"source {name} of {project} and its {documents}"
            confirm(f"{subject} are to be deleted", yes=yes)
            return await _delete(client, sources, source, patience)

    count = run_client(main)
    if json:
        print_json({"project": project, "source": name, "deleted": count})
    else:
        documents = f"{count:,} document{'s' * (count != 1)}"
        typer.echo(printable(f"{project}: source {name} was removed, {documents} deleted"))


async def _delete(
    client: OperatorClient, sources: Sources, source: RegisteredSource, patience: timedelta
) -> int:
    """Delete the documents of a source while holding its lease; returns their number."""
    horizon = await client.horizon()
    leased_source = await sources.take(source, 2 * patience, horizon)
    try:
        uris = sorted(await sources.documents(source))
        await delete_documents(client, source.project, source.owner, uris, patience)
    except BaseException:
        await sources.release(leased_source)
        raise
    await sources.forget(leased_source)
    return len(uris)


async def _check_overlays(sources: Sources, source: RegisteredSource) -> None:
    """Raise UsageError if other sources are overlays of a source."""
    listed = await sources.list(source.project, source.agent)
    overlays = [other.name for other in listed if other.base_id == source.id]
    if overlays:
        raise UsageError(
            f"source {source.name} has overlays: {', '.join(overlays)}", "delete them first"
        )


async def _waiting(batches: Batches, project: str, source: SourceRow) -> int | None:
    """Number of changes of the latest sync that are not handled yet."""
    if source.batch is None:
        return None
    return (await batches.progress(project, source.batch.id)).waiting


def _row(source: SourceRow, waiting: int | None) -> dict[str, Any]:
    synced_at = source.synced_at
    return {
        "source": source.name,
        "agent": source.agent,
        "base": source.base,
        "id": source.id,
        "kind": source.kind,
        "documents": source.documents,
        "prefix": source.uri_prefix or None,
        "commit": source.commit and source.commit[:12],
        "synced_at": None if synced_at is None else synced_at.isoformat(timespec="seconds"),
        "found": source.found,
        "skipped": None if source.batch is None else source.skipped_count,
        "skipped_by_reason": {files.reason: files.count for files in source.skipped},
        "waiting": waiting,
        "batch": None if source.batch is None else source.batch.id,
        "location": source.location,
    }


def _with_reasons(row: Mapping[str, Any]) -> dict[str, Any]:
    """Row of the table: the skipped files by reason are in one cell."""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in row["skipped_by_reason"].items())
    return {**row, "skipped": f"{row['skipped']:,} ({reasons})" if reasons else row["skipped"]}
