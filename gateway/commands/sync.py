"""``headrace sync``, ``watch``, ``hook`` and ``import``: publish the changes of a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import datetime
from typing import Annotated

import typer

from events.names import Lane
from gateway.output import on_one_line, print_json, printable, stderr
from gateway.progress import progress
from gateway.servers import prepare_home
from gateway.session import (
    CollectionOption,
    IncludeOption,
    JsonOption,
    OwnerOption,
    PrefixOption,
    ProjectOption,
    SourceOption,
    WorktreeOption,
    load_settings,
    run_client,
)
from gateway.sync.hook import LOG, hook_line, sync_behind_git
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport, describe
from gateway.sync.request import YOUNG_OBJECTS, SyncRequest
from gateway.sync.sync import Until
from gateway.sync.watch import watch_sources
from runtime.errors import UsageError
from runtime.process_health import settle_heap
from runtime.settings import Settings
from sources import Reason, Source, open_source
from sources.comparison import Step
from sources.git import GitSource
from sources.git_hooks import GitHooks
from sources.import_file import open_import

__all__ = ["command", "hook", "import_file", "publish_source", "watch"]

hook = typer.Typer(rich_markup_mode=None)

_VERBS = {"upsert": "publish", "rename": "rename", "delete": "delete"}
_OBVIOUS = (Reason.RENAMED, Reason.DELETED)
"""Reasons that say the same as their change."""

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


def command(
    path: Annotated[
        str,
        typer.Argument(help="A git repository, any directory, or the URL of a bucket (s3://…)."),
    ],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
    source: SourceOption = None,
    prefix: PrefixOption = None,
    include: IncludeOption = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="For a bucket: leave out files that match this pattern."),
    ] = None,
    lane: LaneOption = None,
    worktree: WorktreeOption = False,
    branch: Annotated[
        str | None,
        typer.Option(help="Publish the differences of this branch, as an overlay."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Publish what differs from the source of this name, as an overlay."),
    ] = None,
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
    files are left out: see "What a sync leaves out" in docs/how-to/sync.md. A linked work tree of a
    synced repository, a branch and a source with a base are overlays: only questions in the overlay
    see what they change.
    """

    def opened(settings: Settings) -> Source:
        return open_source(
            path,
            include or (),
            [settings.home_directory],
            worktree=worktree,
            branch=branch,
            exclude=exclude or (),
        )

    publish_source(
        opened,
        Destination(project, tuple(collection or ()), lane, source, prefix, agent, base),
        full=full,
        dry_run=dry_run,
        skipped=skipped,
        wait=wait,
        vectors=vectors,
        json=json,
    )


def watch(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Git repositories and any other directories."),
    ],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
    source: SourceOption = None,
    prefix: PrefixOption = None,
    include: IncludeOption = None,
    worktree: WorktreeOption = False,
    poll: Annotated[
        bool,
        typer.Option(
            "--poll", help="Compare all files every second, for file systems without notifications."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Publish the changes of directories and repositories as they happen, until Ctrl-C.

    It begins with a sync of each PATH. Then each batch of changes is followed by a sync, 300 ms
    after the last change and at most 2 s after the first. Of a repository, commits are published;
    with --worktree, saved files. `headrace up` or other servers must run.
    """
    _require_name(source)
    if len(paths) > 1 and (source is not None or prefix is not None):
        raise UsageError("--source and --prefix are for one PATH", "watch each PATH by itself")
    destination = Destination(project, tuple(collection or ()), None, source, prefix, agent)
    tally = _Tally(json)

    def request(path: str) -> SyncRequest:
        def opened(settings: Settings) -> Source:
            return open_source(path, include or (), [settings.home_directory], worktree=worktree)

        return SyncRequest(opened, destination, Until.PUBLISHED)

    requests = [request(path) for path in paths]
    try:
        run_client(lambda settings: watch_sources(settings, requests, tally.add, _note, poll=poll))
    except KeyboardInterrupt:
        _note(f"ended after {tally}")


RepositoryArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="A git repository, or a folder of it.")
]


@hook.command()
def install(
    path: RepositoryArgument = ".",
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
    source: SourceOption = None,
    prefix: PrefixOption = None,
    include: IncludeOption = None,
) -> None:
    """Sync a repository in the background after each commit, merge, rewrite and checkout.

    Hooks that exist keep all their lines, and core.hooksPath is respected. The syncs write to
    hook.log under HEADRACE_HOME. They do nothing if no servers run; then a later sync publishes the
    commits.
    """
    _require_name(source)
    settings = load_settings(quiet=True)
    repository = _repository(path, settings)
    destination = Destination(project, tuple(collection or ()), None, source, prefix, agent)
    directory, log = repository.hooks_directory(), prepare_home(settings) / LOG
    line = hook_line(settings, repository.location, destination, include or ())
    GitHooks(directory).install(line)
    synced = f"{repository.location} into project {project}"
    typer.echo(printable(f"the hooks in {directory} sync {synced} and write to {log}"))


@hook.command()
def remove(path: RepositoryArgument = ".") -> None:
    """Remove the lines that `install` has added; the other lines of the hooks stay."""
    directory = _repository(path, load_settings(quiet=True)).hooks_directory()
    removed = GitHooks(directory).remove()
    state = "no longer sync" if removed else "did not sync"
    typer.echo(printable(f"the hooks in {directory} {state}"))


@hook.command("run", hidden=True)
def run_hook(
    path: RepositoryArgument,
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
    source: SourceOption = None,
    prefix: PrefixOption = None,
    include: IncludeOption = None,
) -> None:
    """Sync a repository for its hooks. Of several at once, one runs, one waits, the others end."""
    destination = Destination(project, tuple(collection or ()), None, source, prefix, agent)

    def opened(settings: Settings) -> Source:
        return open_source(path, include or (), [settings.home_directory])

    request = SyncRequest(opened, destination)
    for line in sync_behind_git(load_settings(quiet=True), request, path):
        typer.echo(line)


def _repository(path: str, settings: Settings) -> GitSource:
    source = open_source(path, homes=[settings.home_directory])
    if not isinstance(source, GitSource) or not source.has_work_tree:
        raise UsageError(f"{path} is not a git repository with a work tree", "use `headrace watch`")
    return source


def import_file(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="File with a JSON object per line; - is standard input."
        ),
    ],
    project: ProjectOption = "default",
    collection: CollectionOption = None,
    agent: OwnerOption = None,
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

    def opened(_settings: Settings) -> Source:
        return open_import(file, source, prune=prune, keep_going=keep_going)

    publish_source(
        opened,
        Destination(project, tuple(collection or ()), lane, source, prefix, agent),
        full=full,
        dry_run=dry_run,
        skipped=skipped,
        wait=wait,
        vectors=vectors,
        json=json,
    )


def publish_source(
    opened: Callable[[Settings], Source],
    destination: Destination,
    *,
    full: bool,
    dry_run: bool,
    skipped: bool,
    wait: bool,
    vectors: bool,
    json: bool,
) -> None:
    """Sync a source that a command opens, with the options that all of them have."""
    _require_name(destination.source)
    until = Until.VECTORS if vectors else Until.KEYWORDS if wait else Until.PUBLISHED
    request = SyncRequest(opened, destination, until, full)
    if dry_run:
        _print_preview(*run_client(lambda settings: _preview(settings, request)), skipped, json)
        return
    report = run_client(lambda settings: _sync(settings, request))
    if json:
        print_json(report.to_json())
    else:
        _print_lines(report, skipped)


def _require_name(source: str | None) -> None:
    if source == "":
        raise UsageError("--source is empty", "give the source a name")


class _Tally:
    """Prints the reports of a watch, and counts what they published."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._syncs = self._published = self._deleted = 0

    def __str__(self) -> str:
        return f"{self._syncs:,} syncs: {self._published:,} published, {self._deleted:,} deleted"

    def add(self, paths: Set[str], report: SyncReport) -> None:
        """Print the report of a sync after changes of ``paths``; without effect, only as JSON."""
        self._syncs += 1
        self._published += report.published
        self._deleted += report.deleted
        if self._json:
            rest = {key: value for key, value in report.to_json().items() if key != "skipped_paths"}
            print_json({**rest, "changed_paths": len(paths)})
        elif report.published or report.deleted or report.rejected or report.older_than:
            typer.echo(f"{datetime.now():%H:%M:%S} ", nl=False)
            _print_lines(report, skipped=False)


async def _sync(settings: Settings, request: SyncRequest) -> SyncReport:
    settle_heap(YOUNG_OBJECTS)
    source = request.open(settings)
    with progress() as show:
        return await request.run(settings, source, show)


async def _preview(settings: Settings, request: SyncRequest) -> tuple[SyncReport, Sequence[Step]]:
    source = request.open(settings)
    with progress() as show:
        return await request.preview(settings, source, show)


def _note(line: str) -> None:
    stderr().print(printable(line), markup=False)


def _print_lines(report: SyncReport, skipped: bool, *, is_preview: bool = False) -> None:
    for line in describe(report, skipped=skipped, is_preview=is_preview):
        typer.echo(on_one_line(line))


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
        why = f" ({step.reason or 'not read'})" if step.reason not in _OBVIOUS else ""
        typer.echo(on_one_line(f"to {_VERBS[step.change]}{why}: {document}"))
    _print_lines(report, skipped, is_preview=True)
