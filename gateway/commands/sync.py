"""``headrace sync`` and ``headrace import``: publish the changes of a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from events.names import Lane
from gateway.clients import check_signing_key, open_client, open_database, open_store, store_of
from gateway.output import print_json, printable
from gateway.progress import progress
from gateway.servers import configured, stack
from gateway.session import JsonOption, ProjectOption, run_client
from gateway.sync.report import SyncReport, describe
from gateway.sync.sync import Destination, Until, preview_sync, size_limits, sync_source
from runtime.errors import UsageError
from runtime.process_health import settle_heap
from runtime.settings import Settings
from sources import Source, open_source
from sources.comparison import Step
from sources.import_file import open_import

__all__ = ["command", "import_file"]

_YOUNG_OBJECTS = 200_000
"""A listing of 100,000 files makes a million objects, none of which is garbage."""


CollectionOption = Annotated[
    list[str] | None, typer.Option(help="Put the documents into this collection.")
]
PrefixOption = Annotated[
    str | None,
    typer.Option(help="Prefix of the uri of every document, such as docs/; later syncs keep it."),
]
LaneOption = Annotated[
    Lane | None, typer.Option(help="Default: bulk for a first or large sync, else live.")
]
FullOption = Annotated[
    bool, typer.Option("--full", help="Publish everything, even what is indexed already.")
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="List what would be published and deleted, and why; change nothing."
    ),
]
SkippedOption = Annotated[
    bool, typer.Option("--skipped", help="List the files that are left out, and why.")
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Wait until everything is searchable by keyword."),
]
VectorsOption = Annotated[
    bool,
    typer.Option(
        "--vectors",
        help="Wait until everything is also searchable by vector (always, if no servers run).",
    ),
]


@dataclass(frozen=True)
class _Request:
    """Arguments of the command."""

    open: Callable[[Settings], Source]
    destination: Destination
    until: Until
    full: bool = False


def command(
    path: Annotated[
        str,
        typer.Argument(help="A git repository, any directory, or the URL of a bucket (s3://…)."),
    ],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Name that identifies the source; "
            "default: the repository, or the path of the directory."
        ),
    ] = None,
    prefix: PrefixOption = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            help="Also publish files that match this pattern (as in .gitignore), even if they are "
            "ignored or left out by default."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Of a bucket: leave out files that match this pattern."),
    ] = None,
    lane: LaneOption = None,
    worktree: Annotated[
        bool,
        typer.Option("--worktree", help="For a repository: publish the files as they are now."),
    ] = False,
    full: FullOption = False,
    dry_run: DryRunOption = False,
    skipped: SkippedOption = False,
    wait: WaitOption = False,
    vectors: VectorsOption = False,
    json: JsonOption = False,
) -> None:
    """Publish new and changed documents of a source, and delete those that it no longer has.

    From a git repository: the tracked files at HEAD, renames as renames. From a directory: the
    files that .gitignore doesn't exclude. Secrets, dependencies, lock files, generated and minified
    files are left out: see "What a sync leaves out" in docs/how-to/sync.md.
    """
    _require_name(source)
    destination = Destination(project, tuple(collection or ()), lane, source, prefix)

    def opened(settings: Settings) -> Source:
        return open_source(
            path,
            include or (),
            [settings.home_directory],
            worktree=worktree,
            exclude=exclude or (),
        )

    request = _Request(opened, destination, _until(wait, vectors), full)
    _run(request, dry_run=dry_run, skipped=skipped, json=json)


def import_file(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File with a JSON object per line; - is standard input."
        ),
    ],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    source: Annotated[
        str | None,
        typer.Option(help="Name that identifies the source; default: the path of the file."),
    ] = None,
    prefix: PrefixOption = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete documents of earlier imports that the file does not name."
        ),
    ] = False,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Skip invalid lines; then nothing is pruned. See --skipped."
        ),
    ] = False,
    lane: LaneOption = None,
    full: FullOption = False,
    dry_run: DryRunOption = False,
    skipped: SkippedOption = False,
    wait: WaitOption = False,
    vectors: VectorsOption = False,
    json: JsonOption = False,
) -> None:
    """Publish the documents of a file of JSON lines that are new or have changed.

    A line has `uri`, one of `content`, `content_base64` and `path` (of a file below the folder of
    FILE), and optionally `kind`, `media_type`, `title`, `metadata`, `permalink_template`. A line
    with `"change": "delete"` deletes a document. Recipes are in docs/how-to/import.md.
    """
    _require_name(source)
    destination = Destination(project, tuple(collection or ()), lane, source, prefix)

    def opened(_settings: Settings) -> Source:
        return open_import(file, source, prune=prune, keep_going=keep_going)

    request = _Request(opened, destination, _until(wait, vectors), full)
    _run(request, dry_run=dry_run, skipped=skipped, json=json)


def _require_name(source: str | None) -> None:
    if source == "":
        raise UsageError("--source is empty", "give the source a name")


def _until(wait: bool, vectors: bool) -> Until:
    return Until.VECTORS if vectors else Until.KEYWORDS if wait else Until.PUBLISHED


def _run(request: _Request, *, dry_run: bool, skipped: bool, json: bool) -> None:
    if dry_run:
        _print_preview(*run_client(lambda settings: _preview(settings, request)), skipped, json)
        return
    report = run_client(lambda settings: _sync(settings, request))
    if json:
        print_json(report.to_json())
    else:
        _print_lines(report, skipped)


async def _sync(settings: Settings, request: _Request) -> SyncReport:
    settle_heap(_YOUNG_OBJECTS)
    source = request.open(settings)
    # without configured servers, the worker ends with this command
    until = Until.VECTORS if configured(settings) is None else request.until
    async with (
        stack(settings) as running,
        open_database(running) as database,
        open_client(running, store := store_of(database, running)) as client,
    ):
        await check_signing_key(running, request.destination.project, database)
        with progress() as show:
            return await sync_source(
                source,
                request.destination,
                client,
                store,
                sizes=size_limits(running),
                until=until,
                show=show,
                full=request.full,
            )


async def _preview(settings: Settings, request: _Request) -> tuple[SyncReport, Sequence[Step]]:
    source = request.open(settings)
    async with (
        stack(settings) as running,
        open_store(running) as store,
        open_client(running, store) as client,
    ):
        with progress() as show:
            return await preview_sync(
                source,
                request.destination,
                client,
                store,
                sizes=size_limits(running),
                show=show,
                full=request.full,
            )


def _print_lines(report: SyncReport, skipped: bool) -> None:
    for line in describe(report, skipped=skipped):
        typer.echo(printable(line))


def _print_preview(report: SyncReport, steps: Sequence[Step], skipped: bool, json: bool) -> None:
    if json:
        changes = [
            {"change": step.change, "uri": step.uri, "old_uri": step.old_uri, "why": step.reason}
            for step in steps
        ]
        print_json({**report.to_json(), "dry_run": True, "changes": changes})
        return
    for step in steps:
        document = step.uri if step.old_uri is None else f"{step.old_uri} → {step.uri}"
        typer.echo(printable(f"{step.change} ({step.reason or 'not read'}): {document}"))
    _print_lines(report, skipped)
