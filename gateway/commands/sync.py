"""``headrace sync``: a directory or repository, and what changed in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from events import Lane
from gateway.clients import open_client, open_store
from gateway.output import print_json, printable
from gateway.progress import progress
from gateway.session import JsonOption, ProjectOption, run_client
from gateway.signing import check_signing_key
from gateway.stack import configured, stack
from gateway.syncing import Destination, SyncReport, Until, sync_source
from runtime.settings import Settings
from sources import Source, open_source

__all__ = ["command", "describe"]


def command(
    path: Annotated[Path, typer.Argument(help="A git repository, or any directory.")],
    project: ProjectOption = "default",
    collection: Annotated[
        list[str] | None, typer.Option(help="Put the documents into this collection.")
    ] = None,
    lane: Annotated[
        Lane | None, typer.Option(help="Default: bulk for a first or large sync, else live.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until all is searchable by keyword."),
    ] = False,
    vectors: Annotated[
        bool,
        typer.Option(
            "--vectors",
            help="Wait until all is searchable by vector too (always without a running `up`).",
        ),
    ] = False,
    include: Annotated[
        list[str] | None,
        typer.Option(
            help="Take what matches this pattern, in the form of .gitignore, although it is left "
            "out by default or ignored."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Publish what changed since the last sync.

    Of a git repository: the tracked files at HEAD, renames as renames. Of a directory: what
    .gitignore doesn't exclude. Secrets, dependencies, lock files, generated and minified files are
    left out: see "What a sync leaves out" in docs/runbook.md.
    """
    destination = Destination(project, tuple(collection or ()), lane)
    until = Until.VECTORS if vectors else Until.KEYWORDS if wait else Until.PUBLISHED

    async def run(settings: Settings) -> SyncReport:
        source = open_source(path, include or (), (settings.home_directory,))
        return await _sync(settings, source, destination, until)

    report = run_client(run)
    if json:
        print_json(report.to_json())
    else:
        typer.echo(printable(describe(report)))


async def _sync(
    settings: Settings, source: Source, destination: Destination, until: Until
) -> SyncReport:
    if configured(settings) is None:  # the worker ends with this command
        until = Until.VECTORS
    async with (
        stack(settings) as running,
        open_store(running) as store,
        open_client(running, store) as client,
    ):
        await check_signing_key(running, destination.project)
        with progress() as show:
            return await sync_source(
                source,
                destination,
                client,
                store,
                max_bytes=running.max_document_bytes,
                until=until,
                show=show,
            )


def describe(report: SyncReport) -> str:
    """One line for a person."""
    skipped = ", ".join(f"{reason} {count}" for reason, count in sorted(report.skipped.items()))
    return (
        f"{report.kind} {report.source}: {report.found:,} files found, "
        f"{report.unchanged:,} unchanged, {report.published:,} published, "
        f"{report.deleted:,} deleted, {report.indexed:,} indexed, {_waiting(report)}"
        f"{report.skipped.total():,} skipped{f' ({skipped})' if skipped else ''}"
    )


def _waiting(report: SyncReport) -> str:
    return f"{report.chunks_pending:,} chunks wait for vectors, " if report.chunks_pending else ""
