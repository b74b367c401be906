"""``headrace replay``: rebuild the index from the log, beside the live one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from events.models import Kind
from events.replays import ReplayState, ReplayStates
from gateway.clients import names_of, open_redis
from gateway.operations.replay_runs import (
    gate_of,
    generations_table,
    plan_projects,
    print_differences,
    print_plans,
    print_reports,
    print_states,
    print_switch,
    published,
    replay_projects,
    replay_state,
)
from gateway.output import print_json, stdout
from gateway.progress import ShowProgress, progress
from gateway.servers import require_database, stack
from gateway.session import JsonOption, run_client
from processors.replay.generations import (
    SwitchResult,
    find_generation,
    generation_before,
    list_generations,
    switch_to,
)
from processors.replay.generations import drop as drop_generation
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools, open_operator_tools
from runtime.cores import replay_processes
from runtime.errors import UsageError
from runtime.settings import Settings
from store.generations.catalog import Generation

__all__ = ["command"]

_MAX_DROP = 0.01

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="This project only; default: all projects.")
]
ReplayIdOption = Annotated[
    str | None,
    typer.Option("--id", hidden=True, help="Id under which the state is published."),
]
GenerationArgument = Annotated[int, typer.Argument(metavar="ID", help="Id from `list`.")]


@command.callback(invoke_without_command=True)
def replay(
    typed: typer.Context,
    project: ProjectOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="EVENT_ID|TIME",
            help="Rebuild what changed since then; copy the rest. Times in ISO 8601.",
        ),
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Rebuild this kind of content only.")] = None,
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
    context: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|off", help="Language model that writes a context for each chunk."
        ),
    ] = None,
    refresh_context: Annotated[
        bool, typer.Option("--refresh-context", help="Ask for all contexts again.")
    ] = False,
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
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most processes that build at once; default: one for every four cores, at most 4.",
        ),
    ] = None,
    json: JsonOption = False,
    replay_id: ReplayIdOption = None,
) -> None:
    """Build a new index from the log, beside the live one; verify it and switch to it.

    The live index keeps serving if this fails. Run the command again to resume.
    """
    if typed.invoked_subcommand is not None:
        return
    if gate is None and max_drop is not None:
        raise UsageError("--max-drop needs --gate", "name the directory with its questions")
    if replay_id is not None and project is None:
        raise UsageError("--id needs --project", "name the project of the replay")
    choice = Choice(
        since,
        kind and kind.value,
        collection,
        model,
        chunking,
        context=context,
        refresh_context=refresh_context or None,
    )
    if dry:
        plans = _run(lambda tools, show: plan_projects(tools, project, choice, show, replay_id))
        print_plans(plans, json)
        return
    checks = None if gate is None else gate_of(gate, _MAX_DROP if max_drop is None else max_drop)
    reports: list[ReplayReport] = []
    try:
        _run(
            lambda tools, show: replay_projects(
                tools,
                project,
                choice,
                checks,
                show,
                reports,
                replay_id,
                processes or replay_processes(),
            )
        )
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
def status(
    replay_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of one replay; default: all.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the progress of running replays, and the results of the last ones."""

    async def work(states: ReplayStates) -> list[ReplayState]:
        return await states.all() if replay_id is None else [await states.find(replay_id)]

    print_states(_with_states(work), json)


@command.command()
def stop(
    replay_id: Annotated[str, typer.Argument(metavar="ID", help="Id from `status`.")],
) -> None:
    """Stop a running replay; what it has built is kept, and the live index is unchanged."""

    async def work(states: ReplayStates) -> ReplayState:
        state = await states.find(replay_id)
        if not state.has_ended:
            await states.request_stop(replay_id)
        return state

    state = _with_states(work)
    if state.has_ended:
        typer.echo(f"the {state.operation} of {state.project} has ended already: {state.state}")
    else:
        typer.echo(f"the {state.operation} of {state.project} stops within a few seconds")


@command.command()
def switch(
    generation: GenerationArgument, json: JsonOption = False, replay_id: ReplayIdOption = None
) -> None:
    """Bring a former generation up to date, and make it live."""

    async def work(tools: OperatorTools, show: ShowProgress) -> SwitchResult:
        project, chosen = await find_generation(tools, generation)
        state = replay_state(replay_id, project, "switch", generation=generation)
        return await _switch(tools, chosen, show, state)

    print_switch(_run(work), json)


@command.command()
def rollback(
    project: Annotated[str, typer.Option("--project", "-p", help="Name of the project.")],
    json: JsonOption = False,
    replay_id: ReplayIdOption = None,
) -> None:
    """Roll back to the generation that was live before."""

    async def work(tools: OperatorTools, show: ShowProgress) -> SwitchResult:
        chosen = await generation_before(tools, project)
        state = replay_state(replay_id, project, "rollback", generation=chosen.id)
        return await _switch(tools, chosen, show, state)

    print_switch(_run(work), json)


@command.command()
def drop(
    generation: GenerationArgument, json: JsonOption = False, replay_id: ReplayIdOption = None
) -> None:
    """Delete a generation that is not live, with all its rows."""

    async def work(tools: OperatorTools, show: ShowProgress) -> dict[str, Any]:
        project, _ = await find_generation(tools, generation)
        state = replay_state(replay_id, project, "drop", generation=generation)
        publication = published(tools, show, state)

        async def dropped() -> dict[str, Any]:
            rows = await drop_generation(
                tools, generation, lambda rows: publication.show("rows", rows, 0)
            )
            return {"generation": generation, "rows": rows, "dropped": True}

        return await publication.run(dropped(), lambda result: result)

    result = _run(work)
    if json:
        print_json(result)
    else:
        typer.echo(f"generation {generation} was dropped: {result['rows']:,} rows")


async def _switch(
    tools: OperatorTools, chosen: Generation, show: ShowProgress, state: ReplayState
) -> SwitchResult:
    publication = published(tools, show, state)
    publication.follow(dict, lambda: False)
    work = switch_to(
        tools,
        state.project,
        chosen,
        lambda done, total: publication.show("caught up", done, total),
    )
    return await publication.run(work, SwitchResult.as_json)


def _with_states(work: Callable[[ReplayStates], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with stack(settings, with_worker=False) as running, open_redis(running) as redis:
            return await work(ReplayStates(redis, names_of(running)))

    return run_client(main)


def _run(work: Callable[[OperatorTools, ShowProgress], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_operator_tools(require_database(running)) as tools,
        ):
            with progress() as show:
                return await work(tools, show)

    return run_client(main)
