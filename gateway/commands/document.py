"""``headrace document``: list, show, delete and purge single documents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from events.client.client import Client
from gateway.clients import check_signing_key, open_client, open_database
from gateway.deletion import (
    YesOption,
    confirm,
    delete_documents,
    print_report,
    run_purge,
)
from gateway.output import on_one_line, print_json, printable, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, ProjectOption, duration, run_client
from processors.purge.documents import Purge, PurgeReport, purge_documents
from runtime.errors import NotFound, UsageError
from runtime.settings import Settings
from store.postgres.pool import EVERY_AGENT, Database
from store.views.listing import ChunkRow, DocumentRow, Listing, cursor_of

__all__ = ["command"]

T = TypeVar("T")

_PAGE = 1_000
_AFTER_ALL_AGENTS = chr(0x10FFFF)
_CHUNK_FIELDS = (
    *("start_line", "end_line", "page", "symbol", "heading_path", "tokens", "content"),
    *("is_example", "language"),
)

command = typer.Typer(rich_markup_mode=None)

PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="X", help="Documents whose uri begins with X.")
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", "--user", help="Private documents of this agent; default: shared documents."
    ),
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
    after: Annotated[
        str | None, typer.Option(metavar="URI", help="Begin after this uri, the last one listed.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Most documents; those of the last uri are listed together."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List documents by uri, including private documents of all agents."""

    async def work(database: Database) -> list[DocumentRow]:
        listing = Listing(database)
        cursor = None if after is None else cursor_of(after, _AFTER_ALL_AGENTS)
        return await _read(listing, project, prefix, source, cursor, limit)

    documents = _with_database(work)
    if json:
        for document in documents:
            print_json(_plain(document))
    elif documents:
        overlays = any(document.overlay for document in documents)
        stdout().print(table([_row(document, overlays=overlays) for document in documents]))
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

    async def work(database: Database) -> dict[str, Any]:
        listing = Listing(database)
        document = await listing.document(project, agent, uri)
        if document.agent != agent:
            raise NotFound(f"{project} has no document {uri!r} of agent {agent!r}")
        chunks = await listing.chunks(project, agent, uri, limit=document.chunks)
        return _to_json(document, chunks)

    plain = _with_database(work)
    if json:
        print_json(plain)
        return
    chunks = plain.pop("chunks_held")
    for name, value in plain.items():
        shown = "-" if value in (None, [], {}) else on_one_line(str(value))
        typer.echo(f"{name.replace('_', ' '):>13}  {shown}")
    for chunk in chunks:
        lines = f"{chunk['start_line']}-{chunk['end_line']}"
        heading = " > ".join([*chunk["heading_path"], *filter(None, [chunk["symbol"]])])
        part = "code example, lines" if chunk["is_example"] else "lines"
        typer.echo(f"\n--- {part} {lines}  {on_one_line(heading)}".rstrip())
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
            chosen = await _chosen(running, project, agent, uris, prefix, deleted_too=False)
            if prefix is not None:
                confirm(f"{_are(chosen, project)} to be deleted", yes=yes)
            async with open_client(running) as client:
                await delete_documents(
                    client, project, agent or "", chosen, patience if wait else None
                )
            return len(chosen)

    count = run_client(main)
    if json:
        print_json({"project": project, "deleted": count})
    else:
        typer.echo(f"{project}: {count:,} delete{'s' * (count != 1)} published")


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
        confirm(
            f"{_are(chosen, project)} to be removed permanently, and tables rewritten while "
            "questions wait",
            yes=yes,
        )
        return await purge_documents(tools, client, project, agent or "", chosen)

    print_report(run_purge(work, duration(timeout)), json=json)


def _are(uris: Sequence[str], project: str) -> str:
    """Subject and verb of a sentence about documents."""
    if len(uris) == 1:
        return f"1 document of {project} is"
    return f"{len(uris):,} documents of {project} are"


async def _chosen(
    running: Settings,
    project: str,
    agent: str | None,
    uris: list[str] | None,
    prefix: str | None,
    *,
    deleted_too: bool = True,
    unknown_too: bool = False,
) -> list[str]:
    """Uris of the chosen documents. A prefix chooses deleted ones only with ``deleted_too``.

    Raises:
        UsageError: both uris and a prefix are given, or neither; or one of the uris was never
            indexed, unless ``unknown_too`` is set.
    """
    if bool(uris) == (prefix is not None):
        raise UsageError("give either the uris of documents or --prefix")
    async with open_database(running) as database:
        indexed = await Listing(database).stored_uris(
            project, agent, uris=uris or (), prefix=prefix, deleted_too=deleted_too
        )
    unknown = sorted(set(uris or ()) - set(indexed))
    if unknown and unknown_too:
        return [*indexed, *unknown]
    if unknown:
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise UsageError(
            f"{project} has never had {unknown[0]!r}{more}",
            f"`headrace document list -p {project}` prints uris (for rejected documents, use "
            "purge --unknown)",
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


async def _read(
    listing: Listing,
    project: str,
    prefix: str | None,
    source: str | None,
    cursor: str | None,
    limit: int | None,
) -> list[DocumentRow]:
    """Read documents, page by page, until ``limit`` is reached and the last uri is complete."""
    documents: list[DocumentRow] = []
    while True:
        page = await listing.documents(
            project, EVERY_AGENT, under=prefix, source=source, after=cursor, limit=_PAGE
        )
        for document in page:
            if limit is not None and len(documents) >= limit and document.uri != documents[-1].uri:
                return documents
            documents.append(document)
        if len(page) < _PAGE:
            return documents
        cursor = page[-1].cursor


def _row(document: DocumentRow, *, overlays: bool) -> dict[str, Any]:
    """Columns of the table; ``overlays`` adds one. A value is None if the document has none."""
    return {
        "uri": on_one_line(document.uri),
        **({"overlay": document.overlay and on_one_line(document.overlay)} if overlays else {}),
        "agent": document.agent,
        "kind": document.kind,
        "chunks": document.chunks,
        "pending": document.pending,
        "commit": document.commit and document.commit[:12],
        "position": document.token,
    }


def _plain(document: DocumentRow) -> dict[str, Any]:
    return {
        "uri": document.uri,
        "overlay": document.overlay,
        "agent": document.agent,
        "kind": document.kind,
        "title": document.title,
        "chunks": document.chunks,
        "examples": document.examples,
        "pending": document.pending,
        "commit": document.commit,
        "published_at": document.published_at.isoformat(),
        "position": document.token,
    }


def _to_json(document: DocumentRow, chunks: Sequence[ChunkRow]) -> dict[str, Any]:
    return {
        **_plain(document),
        "event_id": document.event_id,
        "indexed_at": document.updated_at.isoformat(),
        "media_type": document.media_type,
        "content_hash": document.content_hash,
        "collections": list(document.collections),
        "metadata": dict(document.metadata),
        "chunks_held": [_chunk(chunk) for chunk in chunks],
    }


def _chunk(chunk: ChunkRow) -> dict[str, Any]:
    plain = asdict(chunk)
    return {name: plain[name] for name in _CHUNK_FIELDS}
