"""``headrace replay``: the index built anew from the log, beside the live one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from gateway.kinds import ContentKind
from gateway.output import print_json, stdout
from gateway.progress import ShowProgress, progress
from gateway.replaying import (
    generations_table,
    plan_projects,
    replay_projects,
    tell_differences,
    tell_plans,
    tell_reports,
    tell_returned,
)
from gateway.session import JsonOption, run_client
from gateway.stack import require_database, stack
from processors.replaying.choosing import Choice
from processors.replaying.dropping import drop as drop_generation
from processors.replaying.findings import NotSwitched
from processors.replaying.listing import list_generations
from processors.replaying.opening import Tools, open_tools
from processors.replaying.replayer import Gate
from processors.replaying.reporting import ReplayReport
from processors.replaying.returning import (
    Returned,
    find_generation,
    generation_before,
    return_to,
)
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]

_MAX_DROP = 0.01

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="This project only; default: all.")
]
GenerationArgument = Annotated[int, typer.Argument(metavar="ID", help="As `list` prints it.")]


@command.callback(invoke_without_command=True)
def replay(
    context: typer.Context,
    project: ProjectOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="EVENT_ID|TIME",
            help="Make anew what changed since; carry the rest over. Times in ISO 8601.",
        ),
    ] = None,
    kind: Annotated[
        ContentKind | None, typer.Option(help="Make anew this kind of content only.")
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Make anew the documents of this collection only.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL[@DIMENSIONS]", help="Embed by another model, all kinds or --kind."
        ),
    ] = None,
    chunking: Annotated[
        str | None,
        typer.Option(metavar="VERSION[:TOKENS]", help="Cut by this version, at most so long."),
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be embedded; write nothing.")
    ] = False,
    gate: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="queries.jsonl and qrels.tsv (document id: its uri)."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(help="By how much nDCG@10 over the gate's questions may fall; default: 0.01."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Build a new index from the log, beside the live one; verify it and switch to it.

    Whatever fails leaves the live index serving. Run it again to go on where it was.
    """
    if context.invoked_subcommand is not None:
        return
    if gate is None and max_drop is not None:
        raise UsageError("--max-drop is of a --gate: name the questions to ask, too")
    choice = Choice(since, kind and kind.value, collection, model, chunking)
    if dry:
        plans = _run(lambda tools, show: plan_projects(tools, project, choice, show))
        tell_plans(plans, json)
        return
    checks = None if gate is None else _gate(gate, _MAX_DROP if max_drop is None else max_drop)
    reports: list[ReplayReport] = []
    try:
        _run(lambda tools, show: replay_projects(tools, project, choice, checks, show, reports))
    except NotSwitched as error:
        tell_differences(error, reports, json)
        raise
    tell_reports(reports, json)


@command.command("list")
def list_command(project: ProjectOption = None, json: JsonOption = False) -> None:
    """List the generations that there are, oldest first."""
    found = _run(lambda tools, _: list_generations(tools, project))
    if json:
        for one in found:
            print_json(one.as_json())
    elif found:
        stdout().print(generations_table(found))
    else:
        typer.echo("no projects yet: `headrace sync PATH` makes one")


@command.command()
def switch(generation: GenerationArgument, json: JsonOption = False) -> None:
    """Make a former generation the live one, once it has caught up."""

    async def work(tools: Tools, show: ShowProgress) -> Returned:
        project, chosen = await find_generation(tools, generation)
        return await return_to(
            tools, project, chosen, lambda done, total: show("caught up", done, total)
        )

    tell_returned(_run(work), json)


@command.command()
def rollback(
    project: Annotated[str, typer.Option("--project", "-p", help="Name of the project.")],
    json: JsonOption = False,
) -> None:
    """Go back to the generation that was live before."""

    async def work(tools: Tools, show: ShowProgress) -> Returned:
        chosen = await generation_before(tools, project)
        return await return_to(
            tools, project, chosen, lambda done, total: show("caught up", done, total)
        )

    tell_returned(_run(work), json)


@command.command()
def drop(generation: GenerationArgument, json: JsonOption = False) -> None:
    """Delete a generation that isn't live, with all its rows."""

    async def work(tools: Tools, show: ShowProgress) -> int:
        return await drop_generation(tools, generation, lambda rows: show("rows", rows, 0))

    rows = _run(work)
    if json:
        print_json({"generation": generation, "rows": rows, "dropped": True})
    else:
        typer.echo(f"generation {generation} is dropped: {rows:,} rows")


def _gate(directory: Path, max_drop: float) -> Gate:
    from gateway.gating import gate_of  # noqa: PLC0415 - few replays ask questions

    return gate_of(directory, max_drop)


def _run(work: Callable[[Tools, ShowProgress], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_tools(require_database(running)) as tools,
        ):
            with progress() as show:
                return await work(tools, show)

    return run_client(main)
