"""``headrace document``: what the index holds of single documents, and how they leave it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from events import Client
from gateway.clients import open_client, open_database
from gateway.confirming import YesOption, confirm
from gateway.deleting import delete_documents, find_source
from gateway.output import print_json, printable, stdout
from gateway.purging import print_report, run_purge
from gateway.session import JsonOption, ProjectOption, duration, run_client
from gateway.signing import check_signing_key
from gateway.stack import stack
from gateway.tables import table
from processors.purging.documents import Purge, purge_documents
from processors.purging.report import PurgeReport
from runtime.errors import UsageError
from runtime.settings import Settings
from store.database import Database
from store.listing import Documents, DocumentText, ListedDocument
from store.projects import Projects
from store.sources import Sources

__all__ = ["command"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="X", help="Those whose uri begins with X.")
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", help="Private ones of this agent; default: shared ones.")
]
UrisArgument = Annotated[list[str] | None, typer.Argument(metavar="[URI]...")]
UriArgument = Annotated[str, typer.Argument(metavar="URI")]
TimeoutOption = Annotated[float, typer.Option(help="Longest wait for each step, in seconds.")]


@command.command("list")
def list_documents(
    project: ProjectOption = "default",
    prefix: PrefixOption = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Those of this source.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List documents by uri, with those of every agent."""

    async def work(database: Database) -> list[ListedDocument]:
        projects = Projects(database)
        source_id = None
        if source is not None:
            source_id = (await find_source(Sources(database, projects), project, source)).id
        documents = Documents(database, projects)
        return [one async for one in documents.listed(project, prefix or "", source_id)]

    found = _with_database(work)
    if json:
        for document in found:
            print_json(_plain(document))
    elif found:
        stdout().print(table([_row(document) for document in found]))
    else:
        typer.echo("no documents")


@command.command()
def show(
    uri: UriArgument,
    project: ProjectOption = "default",
    agent: AgentOption = None,
    json: JsonOption = False,
) -> None:
    """Show all that the index holds of a document, its text in order."""
    found = _with_database(
        lambda database: Documents(database, Projects(database)).find(project, uri, agent or "")
    )
    if found is None:
        raise UsageError(f"{project} has no document {uri!r}: `headrace document list` prints uris")
    if json:
        print_json(_whole(found))
        return
    plain = _whole(found)
    chunks = plain.pop("chunks_held")
    for name, value in plain.items():
        typer.echo(f"{name.replace('_', ' '):>13}  {printable(str(value))}")
    for chunk in chunks:
        where = f"{chunk['start_line']}-{chunk['end_line']}"
        about = " > ".join([*chunk["heading_path"], *filter(None, [chunk["symbol"]])])
        typer.echo(printable(f"\n--- lines {where}  {about}".rstrip()))
        typer.echo(printable(chunk["content"]))


@command.command()
def delete(
    uris: UrisArgument = None,
    project: ProjectOption = "default",
    prefix: PrefixOption = None,
    agent: AgentOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they are gone.")] = False,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete documents through the log: no answer cites them any more.

    Their text stays in the archive for its retention, and in the files of the servers: see purge.
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
        typer.Option("--unknown", help="Even what the index has never had: it was rejected."),
    ] = False,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete documents, and remove their text from index, streams, archive and files.

    Tables are rewritten: questions and writers wait meanwhile. Exits 1 where something remains.
    """

    async def work(running: Settings, tools: Purge, client: Client) -> PurgeReport:
        await check_signing_key(running, project)
        chosen = await _chosen(running, project, agent, uris, prefix, unknown_too=unknown)
        what = f"{len(chosen)} documents of {project} are to be removed for good"
        confirm(f"{what}, and tables rewritten while questions wait", yes=yes)
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
    """The uris that are meant.

    Raises:
        UsageError: both uris and a prefix are given, or none; or the index has never had one of
            them, unless ``unknown_too``.
    """
    if bool(uris) == (prefix is not None):
        raise UsageError("name documents by their uris, or say --prefix")
    async with open_database(running) as database:
        documents = Documents(database, Projects(database))
        known = await documents.known(project, agent or "", uris=uris or (), prefix=prefix)
    unknown = sorted(set(uris or ()) - set(known))
    if unknown and unknown_too:
        return [*known, *unknown]
    if unknown:
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise UsageError(
            f"{project} has never had {unknown[0]!r}{more}: `headrace document list` prints uris "
            "(purge --unknown is for what was rejected)"
        )
    if not known:
        raise UsageError(f"{project} has no document whose uri begins with {prefix!r}")
    return known


def _with_database(work: Callable[[Database], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running) as database,
        ):
            return await work(database)

    return run_client(main)


def _row(document: ListedDocument) -> dict[str, Any]:
    """Columns of the table; an agent and a commit where there is one."""
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


def _whole(found: DocumentText) -> dict[str, Any]:
    return {
        **_plain(found.document),
        "event_id": found.event_id,
        "indexed_at": found.updated_at.isoformat(),
        "media_type": found.media_type,
        "content_hash": found.content_hash,
        "collections": list(found.collections),
        "metadata": dict(found.metadata),
        "chunks_held": [asdict(chunk) for chunk in found.chunks],
    }
