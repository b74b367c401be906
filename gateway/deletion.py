"""Deletes and purges for commands: confirmation, publishing, and the printed report."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from operator import attrgetter
from typing import Annotated

import typer

from events.client.client import Client
from gateway.clients import open_client
from gateway.output import print_json, printable
from gateway.servers import require_database, stack
from gateway.session import run_client
from processors.purge.deletes import await_deletes, publish_deletes
from processors.purge.documents import OUT_OF_REACH, Purge, PurgeReport
from processors.wiring.servers import open_servers
from runtime.errors import UsageError
from runtime.settings import Settings
from store.postgres.roles import OPERATOR
from store.purge.rewriter import Rewriter
from store.sources import RegisteredSource, Sources

__all__ = ["YesOption", "confirm", "delete_documents", "find_source", "print_report", "run_purge"]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


async def delete_documents(
    client: Client, project: str, agent: str, uris: Sequence[str], patience: timedelta | None
) -> None:
    """Publish deletes, and wait for their outcomes unless ``patience`` is None.

    Raises:
        UsageError: a document changed in the meantime, or a delete was rejected.
        Unavailable: a server can't be reached, or no outcome arrived for as long as ``patience``.
    """
    receipts = await publish_deletes(client, project, agent, uris)
    if patience is None:
        return
    _, superseded = await await_deletes(client, list(receipts.values()), patience)
    if superseded:
        raise UsageError(
            f"{superseded} documents changed in the meantime and were not deleted",
            "run the command again",
        )


async def find_source(sources: Sources, project: str, agent: str, name: str) -> RegisteredSource:
    """Find a source by its name, first among the private sources of an agent.

    Raises:
        UsageError: the agent sees no source of this name.
    """
    named = [source for source in await sources.list(project, agent) if source.name == name]
    if named:
        return max(named, key=attrgetter("agent"))
    raise UsageError(
        f"{project} has no source {name!r}", f"`headrace source list -p {project}` lists them"
    )


def confirm(action: str, *, yes: bool) -> None:
    """Return if the user has confirmed by ``yes`` or confirms on the terminal.

    Raises:
        UsageError: the user declines, or there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"{action}, but there is no terminal for confirmation", "repeat with --yes"
        )
    if not typer.confirm(printable(f"{action}. Continue?"), err=True):
        raise UsageError("not confirmed; nothing was done")


def run_purge(
    work: Callable[[Settings, Purge, Client], Awaitable[PurgeReport]], timeout: timedelta
) -> PurgeReport:
    """Connect with the rights that a purge needs, and run it.

    Raises:
        ConfigurationError: the rights are missing; nothing was done.
    """

    async def main(settings: Settings) -> PurgeReport:
        async with _open_purge(settings, timeout) as (running, purge, client):
            return await work(running, purge, client)

    return run_client(main)


@asynccontextmanager
async def _open_purge(
    settings: Settings, timeout: timedelta
) -> AsyncIterator[tuple[Settings, Purge, Client]]:
    async with (
        stack(settings) as running,
        Rewriter.open(require_database(running).owner_database_url) as rewriter,
        open_servers(running, OPERATOR) as servers,
        open_client(running) as client,
    ):
        yield running, Purge(servers, rewriter, timeout), client


def print_report(report: PurgeReport, *, json: bool) -> None:
    """Print the removed and the remaining data; exit with code 1 if anything remains.

    Raises:
        typer.Exit: data remains within reach.
    """
    if json:
        print_json(report.as_json())
    else:
        documents = "" if report.documents is None else f"{report.documents:,} documents "
        typer.echo(printable(f"{report.project}: {documents}purged"))
        for location, removed in report.removed.items():
            typer.echo(printable(f"{location:>22}  {removed}"))
        for reason in report.remains:
            typer.echo(printable(f"{'REMAINS':>22}  {reason}"))
        if report.is_complete:
            typer.echo(f"{'checked':>22}  nothing is left within reach")
        typer.echo(f"{'out of reach':>22}  {OUT_OF_REACH}")
    if not report.is_complete:
        raise typer.Exit(1)
