"""``headrace document``: list, show, delete and purge single documents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from events.client.client import Client
from gateway.clients import check_signing_key, open_client, open_database
from gateway.deletion import (
    YesOption,
    confirm,
    delete_documents,
    find_source,
    print_report,
    run_purge,
)
from gateway.output import print_json, printable, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, ProjectOption, duration, run_client
from processors.purge.documents import Purge, PurgeReport, purge_documents
from runtime.errors import UsageError
from runtime.settings import Settings
from store.documents.reader import Documents, DocumentText, ListedDocument
from store.generations.catalog import Projects
from store.postgres.pool import Database
from store.sources import Sources

__all__ = ["command"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="X", help="Documents whose uri begins with X.")
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", help="Private documents of this agent; default: shared documents."),
]
UrisArgument = Annotated[list[str] | None, typer.Argument(metavar="[URI]...")]
UriArgument = Annotated[str, typer.Argument(metavar="URI")]
TimeoutOption = Annotated[float, typer.Option(help="Longest wait for each step, in seconds.")]


@command.command("list")
def list_documents(
    project: ProjectOption = "default",
    prefix: PrefixOption = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Documents of this source.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List documents by uri, including private documents of all agents."""

    async def work(database: Database) -> list[ListedDocument]:
        projects = Projects(database)
        source_id = None
        if source is not None:
            source_id = (await find_source(Sources(database, projects), project, source)).id
        documents = Documents(database, projects)
        return [document async for document in documents.listed(project, prefix or "", source_id)]

    listing = _with_database(work)
    if json:
        for document in listing:
            print_json(_plain(document))
    elif listing:
        stdout().print(table([_row(document) for document in listing]))
    else:
        typer.echo("no documents")


@command.command()
def show(
    uri: UriArgument,
    project: ProjectOption = "default",
    agent: AgentOption = None,
    json: JsonOption = False,
) -> None:
    """Show all that the index holds of a document."""
    text = _with_database(
        lambda database: Documents(database, Projects(database)).find(project, uri, agent or "")
    )
    if text is None:
        raise UsageError(f"{project} has no document {uri!r}", "`headrace document list` lists all")
    if json:
        print_json(_to_json(text))
        return
    plain = _to_json(text)
    chunks = plain.pop("chunks_held")
    for name, value in plain.items():
        typer.echo(f"{name.replace('_', ' '):>13}  {printable(str(value))}")
    for chunk in chunks:
        lines = f"{chunk['start_line']}-{chunk['end_line']}"
        heading = " > ".join([*chunk["heading_path"], *filter(None, [chunk["symbol"]])])
        typer.echo(printable(f"\n--- lines {lines}  {heading}".rstrip()))
        typer.echo(printable(chunk["content"]))


@command.command()
def delete(
    uris: UrisArgument = None,
    project: ProjectOption = "default",
    prefix: PrefixOption = None,
    agent: AgentOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they are deleted.")] = False,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete documents, so that no answer cites them.

    The deletes are published as changes. The text stays in the archive for its retention, and in
    the servers' files; `purge` removes it.
    """
    patience = duration(timeout)

    async def main(settings: Settings) -> int:
        async with stack(settings) as running:
            await check_signing_key(running, project)
            chosen = await _chosen(running, project, agent, uris, prefix)
            if prefix is not None:
                confirm(f"{len(chosen)} documents of {project} are to be deleted", yes=yes)
            async with open_client(running) as client:
                await delete_documents(
                    client, project, agent or "", chosen, patience if wait else None
                )
            return len(chosen)

    count = run_client(main)
    if json:
        print_json({"project": project, "deleted": count})
    else:
        typer.echo(f"{project}: {count:,} deletes published")


@command.command()
def purge(
    uris: UrisArgument = None,
    project: ProjectOption = "default",
    prefix: PrefixOption = None,
    agent: AgentOption = None,
    unknown: Annotated[
        bool,
        typer.Option(
            "--unknown", help="Also purge uris that were never indexed, because they were rejected."
        ),
    ] = False,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete documents and all copies of their text.

    The text is removed from index, streams, archive and the servers' files. Questions and writes
    wait while tables are rewritten. Exits 1 if any text remains.
    """

    async def work(running: Settings, tools: Purge, client: Client) -> PurgeReport:
        await check_signing_key(running, project)
        chosen = await _chosen(running, project, agent, uris, prefix, unknown_too=unknown)
        action = f"{len(chosen)} documents of {project} are to be removed permanently"
        confirm(f"{action}, and tables rewritten while questions wait", yes=yes)
        return await purge_documents(tools, client, project, agent or "", chosen)

    print_report(run_purge(work, duration(timeout)), json=json)


async def _chosen(
    running: Settings,
    project: str,
    agent: str | None,
    uris: list[str] | None,
    prefix: str | None,
    *,
    unknown_too: bool = False,
) -> list[str]:
    """Uris of the chosen documents.

    Raises:
        UsageError: both uris and a prefix are given, or neither; or one of the uris was never
            indexed, unless ``unknown_too`` is set.
    """
    if bool(uris) == (prefix is not None):
        raise UsageError("give either the uris of documents or --prefix")
    async with open_database(running) as database:
        documents = Documents(database, Projects(database))
        indexed = await documents.stored_uris(project, agent or "", uris=uris or (), prefix=prefix)
    unknown = sorted(set(uris or ()) - set(indexed))
    if unknown and unknown_too:
        return [*indexed, *unknown]
    if unknown:
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise UsageError(
            f"{project} has never had {unknown[0]!r}{more}",
            "`headrace document list` prints uris (for rejected documents, use purge --unknown)",
        )
    if not indexed:
        raise UsageError(f"{project} has no document whose uri begins with {prefix!r}")
    return indexed


def _with_database(work: Callable[[Database], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running) as database,
        ):
            return await work(database)

    return run_client(main)


def _row(document: ListedDocument) -> dict[str, Any]:
    """Columns of the table. Agent and commit are None if the document has none."""
    return {
        "uri": document.uri,
        "agent": document.agent or None,
        "kind": document.kind,
        "chunks": document.chunks,
        "pending": document.pending,
        "commit": document.commit and document.commit[:12],
        "position": document.token,
    }


def _plain(document: ListedDocument) -> dict[str, Any]:
    plain = asdict(document)
    position = plain.pop("token")
    published_at = document.published_at.isoformat()
    agent = document.agent or None
    return {**plain, "agent": agent, "published_at": published_at, "position": position}


def _to_json(text: DocumentText) -> dict[str, Any]:
    return {
        **_plain(text.document),
        "event_id": text.event_id,
        "indexed_at": text.updated_at.isoformat(),
        "media_type": text.media_type,
        "content_hash": text.content_hash,
        "collections": list(text.collections),
        "metadata": dict(text.metadata),
        "chunks_held": [asdict(chunk) for chunk in text.chunks],
    }
