"""Purges run by commands, and the output of their reports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import typer

from events import Client
from gateway.clients import open_client
from gateway.output import print_json, printable
from gateway.session import run_client
from gateway.stack import require_database, stack
from processors.purging.documents import Purge
from processors.purging.report import OUT_OF_REACH, PurgeReport
from processors.servers import open_servers
from runtime.settings import Settings
from store.rewriting import Rewriter
from store.roles import OPERATOR

__all__ = ["print_report", "run_purge"]


def run_purge(
    work: Callable[[Settings, Purge, Client], Awaitable[PurgeReport]], timeout: timedelta
) -> PurgeReport:
    """Connect with the rights that a purge needs, and run it.

    Raises:
        ConfigurationError: the rights are missing; nothing was done.
    """

    async def main(settings: Settings) -> PurgeReport:
        async with _purging(settings, timeout) as (running, purge, client):
            return await work(running, purge, client)

    return run_client(main)


@asynccontextmanager
async def _purging(
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
        what = "" if report.documents is None else f"{report.documents:,} documents "
        typer.echo(printable(f"{report.project}: {what}purged"))
        for place, what in report.removed.items():
            typer.echo(printable(f"{place:>22}  {what}"))
        for reason in report.remains:
            typer.echo(printable(f"{'REMAINS':>22}  {reason}"))
        if report.is_complete:
            typer.echo(f"{'checked':>22}  nothing is left within reach")
        typer.echo(f"{'out of reach':>22}  {OUT_OF_REACH}")
    if not report.is_complete:
        raise typer.Exit(1)
