"""``headrace replay``: rebuild the index from the log, beside the live one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from gateway.output import print_json, stdout
from gateway.progress import ShowProgress, progress
from gateway.replay import (
    generations_table,
    plan_projects,
    print_differences,
    print_plans,
    print_reports,
    print_switch,
    replay_projects,
)
from gateway.servers import require_database, stack
from gateway.session import ContentKind, JsonOption, run_client
from processors.replay.generations import (
    SwitchResult,
    find_generation,
    generation_before,
    list_generations,
    switch_to,
)
from processors.replay.generations import drop as drop_generation
from processors.replay.replay import Gate
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools, open_operator_tools
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]

_MAX_DROP = 0.01

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="This project only; default: all projects.")
]
GenerationArgument = Annotated[int, typer.Argument(metavar="ID", help="Id from `list`.")]


@command.callback(invoke_without_command=True)
def replay(
    context: typer.Context,
    project: ProjectOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="EVENT_ID|TIME",
            help="Rebuild what changed since then; copy the rest. Times in ISO 8601.",
        ),
    ] = None,
    kind: Annotated[
        ContentKind | None, typer.Option(help="Rebuild this kind of content only.")
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Rebuild the documents of this collection only.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL[@DIMENSIONS]", help="Embed with another model, all kinds or only --kind."
        ),
    ] = None,
    chunking: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION[:TOKENS]", help="Chunk with this version, at most TOKENS per chunk."
        ),
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be embedded; write nothing.")
    ] = False,
    gate: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Quality gate: queries.jsonl and qrels.tsv; document ids are uris."
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(help="Largest allowed drop of nDCG@10 in the quality gate; default: 0.01."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Build a new index from the log, beside the live one; verify it and switch to it.

    The live index keeps serving if this fails. Run the command again to resume.
    """
    if context.invoked_subcommand is not None:
        return
    if gate is None and max_drop is not None:
        raise UsageError("--max-drop needs --gate", "name the directory with its questions")
    choice = Choice(since, kind and kind.value, collection, model, chunking)
    if dry:
        plans = _run(lambda tools, show: plan_projects(tools, project, choice, show))
        print_plans(plans, json)
        return
    checks = None if gate is None else _gate(gate, _MAX_DROP if max_drop is None else max_drop)
    reports: list[ReplayReport] = []
    try:
        _run(lambda tools, show: replay_projects(tools, project, choice, checks, show, reports))
    except NotSwitched as error:
        print_differences(error, reports, json)
        raise
    print_reports(reports, json)


@command.command("list")
def list_command(project: ProjectOption = None, json: JsonOption = False) -> None:
    """List generations, oldest first."""
    generations = _run(lambda tools, _: list_generations(tools, project))
    if json:
        for generation in generations:
            print_json(generation.as_json())
    elif generations:
        stdout().print(generations_table(generations))
    else:
        typer.echo("no projects yet: `headrace sync PATH` creates one")


@command.command()
def switch(generation: GenerationArgument, json: JsonOption = False) -> None:
    """Let a former generation catch up, and make it live."""

    async def work(tools: OperatorTools, show: ShowProgress) -> SwitchResult:
        project, chosen = await find_generation(tools, generation)
        return await switch_to(
            tools, project, chosen, lambda done, total: show("caught up", done, total)
        )

    print_switch(_run(work), json)


@command.command()
def rollback(
    project: Annotated[str, typer.Option("--project", "-p", help="Name of the project.")],
    json: JsonOption = False,
) -> None:
    """Roll back to the generation that was live before."""

    async def work(tools: OperatorTools, show: ShowProgress) -> SwitchResult:
        chosen = await generation_before(tools, project)
        return await switch_to(
            tools, project, chosen, lambda done, total: show("caught up", done, total)
        )

    print_switch(_run(work), json)


@command.command()
def drop(generation: GenerationArgument, json: JsonOption = False) -> None:
    """Delete a generation that is not live, with all its rows."""

    async def work(tools: OperatorTools, show: ShowProgress) -> int:
        return await drop_generation(tools, generation, lambda rows: show("rows", rows, 0))

    rows = _run(work)
    if json:
        print_json({"generation": generation, "rows": rows, "dropped": True})
    else:
        typer.echo(f"generation {generation} was dropped: {rows:,} rows")


def _gate(directory: Path, max_drop: float) -> Gate:
    from gateway.quality_gate import gate_of  # noqa: PLC0415 - few replays have a quality gate

    return gate_of(directory, max_drop)


def _run(work: Callable[[OperatorTools, ShowProgress], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_operator_tools(require_database(running)) as tools,
        ):
            with progress() as show:
                return await work(tools, show)

    return run_client(main)
