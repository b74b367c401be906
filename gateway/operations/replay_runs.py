"""Replays and lists of generations for ``headrace replay``, their output, and its quality gate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from bench.evaluation import DEPTH, load_questions, ndcg
from events.replays import Operation, ReplayState
from gateway.output import print_json, printable
from gateway.progress import ShowProgress
from processors.replay.dry_run import Estimate
from processors.replay.generations import SwitchResult, projects_of
from processors.replay.project_log import EntriesByProject
from processors.replay.publication import ReplayPublication
from processors.replay.quality_gate import Ask, EvaluationGate
from processors.replay.replay import Gate, Replay
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import UsageError
from store.generations.inventory import ListedGeneration

__all__ = [
    "gate_of",
    "generations_table",
    "plan_projects",
    "print_differences",
    "print_plans",
    "print_reports",
    "print_states",
    "print_switch",
    "published",
    "replay_projects",
    "replay_state",
]

_QUERY_CHARACTERS = 2000
_SHOWN_DIFFERENCES = 20
_SHORT = ("id", "state", "documents", "chunks", "since", "expires")

ResultT = TypeVar("ResultT", Estimate, ReplayReport)


async def plan_projects(
    tools: OperatorTools,
    project: str | None,
    choice: Choice,
    show: ShowProgress,
    replay_id: str | None = None,
) -> list[Estimate]:
    """Estimate the work of a replay of each project, and publish the progress."""
    plans = []
    names = await projects_of(tools, project)
    entries = _entries_by_project(tools, names)
    for name in names:
        publication = published(tools, show, _state(replay_id, name, "plan", choice))
        work = Replay(tools, name, choice, None, publication.show, entries)
        plans.append(await publication.run(work.plan(), Estimate.as_json))
    return plans


async def replay_projects(
    tools: OperatorTools,
    project: str | None,
    choice: Choice,
    gate: Gate | None,
    show: ShowProgress,
    reports: list[ReplayReport],
    replay_id: str | None = None,
    processes: int = 1,
) -> None:
    """Replay the projects in turn, publish the progress, and append each report to ``reports``."""
    names = await projects_of(tools, project)
    entries = _entries_by_project(tools, names)
    for name in names:
        publication = published(tools, show, _state(replay_id, name, "replay", choice))
        work = Replay(tools, name, choice, gate, publication.show, entries, processes)
        publication.follow(work.report.as_json, partial(getattr, work, "may_be_stopped"))
        reports.append(work.report)
        await publication.run(work.run(), ReplayReport.as_json)


def _entries_by_project(tools: OperatorTools, names: Sequence[str]) -> EntriesByProject | None:
    """Reader of the streams for several projects; None for one, which reads them as they are."""
    return EntriesByProject(tools.redis, tools.names) if len(names) > 1 else None


def gate_of(directory: Path, max_drop: float) -> EvaluationGate:
    """Gate on the mean nDCG@10 over the questions of a set, whose document ids are uris.

    Raises:
        UsageError: the set is ill-formed, or the drop is not between 0 and 1.
    """
    if not 0 <= max_drop <= 1:
        raise UsageError(f"--max-drop must be from 0 to 1, not {max_drop:g}")
    questions = load_questions(directory)

    async def score(ask: Ask) -> float:
        scores = []
        for query, text in questions.queries.items():
            uris = list(dict.fromkeys(await ask(text[:_QUERY_CHARACTERS])))
            scores.append(ndcg(uris, questions.grades[query], DEPTH))
        return statistics.fmean(scores)

    return EvaluationGate(score, max_drop)


def published(tools: OperatorTools, show: ShowProgress, state: ReplayState) -> ReplayPublication:
    """Build the publication of an operation that also shows its progress here."""
    return ReplayPublication(tools.redis, tools.names, state, show)


def replay_state(
    replay_id: str | None, project: str, operation: Operation, **options: Any
) -> ReplayState:
    """First state of an operation; without an id it gets a new one."""
    chosen = {name: value for name, value in options.items() if value is not None}
    identity = {} if replay_id is None else {"id": replay_id}
    return ReplayState(project=project, operation=operation, options=chosen, **identity)


def _state(
    replay_id: str | None, project: str, operation: Operation, choice: Choice
) -> ReplayState:
    return replay_state(replay_id, project, operation, **asdict(choice))


def print_plans(plans: Sequence[Estimate], json: bool) -> None:
    """Print estimates of replays."""
    _print_all(plans, json, _plan_line)


def print_reports(reports: Sequence[ReplayReport], json: bool) -> None:
    """Print reports of replays."""
    _print_all(reports, json, _report_line)


def print_differences(error: NotSwitched, reports: Sequence[ReplayReport], json: bool) -> None:
    """Print the differences that kept a generation from going live, document by document."""
    if json:
        differences = [
            {"agent": difference.agent or None, "uri": difference.uri, "reason": difference.reason}
            for difference in error.differences
        ]
        failure = {"error": error.message, "remedy": error.remedy, "differences": differences}
        print_json(_joined([report.as_json() for report in reports]) | failure)
        return
    for difference in error.differences[:_SHOWN_DIFFERENCES]:
        typer.echo(printable(f"  {difference}"))
    more = len(error.differences) - _SHOWN_DIFFERENCES
    if more > 0:
        typer.echo(f"  and {more:,} more (--json lists all)")


def print_switch(result: SwitchResult, json: bool) -> None:
    """Print the result of a switch or rollback."""
    if json:
        print_json(result.as_json())
        return
    typer.echo(
        f"{result.project}: generation {result.generation} is live, "
        f"{result.former} is kept ({result.caught_up:,} documents caught up, "
        f"{result.seconds:.2f} s)"
    )


def generations_table(generations: Sequence[ListedGeneration]) -> Table:
    """Table with a row for each generation; times are in UTC."""
    columns = (
        "project",
        "id",
        "state",
        "model",
        "chunking",
        "documents",
        "chunks",
        "since",
        "expires",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        # long names are wrapped, so that they stay readable
        table.add_column(column, overflow="fold", no_wrap=column in _SHORT)
    for row in generations:
        generation, recipe = row.generation, row.generation.recipe
        models = [recipe.model, *(f"{k}: {m}" for k, m in recipe.models.items())]
        when = _day(generation.switched_at or generation.created_at)
        expiry = "" if row.expires_at is None else _day(row.expires_at)
        sizes = f"{row.documents:,}", f"{row.chunks:,}"
        identity = row.project, str(generation.id), generation.state
        strategies = sorted(recipe.strategies.items())
        chunking = [recipe.chunking, *(f"{name or 'others'}: {of}" for name, of in strategies)]
        cells = (*identity, ", ".join(models), ", ".join(chunking), *sizes, when, expiry)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _day(time: datetime) -> str:
    return f"{time.astimezone(UTC):%m-%d %H:%M}"


def print_states(states: Sequence[ReplayState], json: bool) -> None:
    """Print the states of replays, newest first."""
    for state in states:
        if json:
            print_json(state.model_dump(mode="json"))
        else:
            typer.echo(printable(_state_line(state)))
    if not states and not json:
        typer.echo("no replays yet: `headrace replay` starts one")


def _print_all(results: Sequence[ResultT], json: bool, line: Callable[[ResultT], str]) -> None:
    if json:
        print_json(_joined([result.as_json() for result in results]))
    elif not results:
        typer.echo("no projects yet: `headrace sync PATH` creates one")
    else:
        for result in results:
            typer.echo(printable(line(result)))


def _joined(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Join results in one object; the fields of a single project are also at the top level."""
    return {**(results[0] if len(results) == 1 else {}), "projects": results}


def _state_line(state: ReplayState) -> str:
    began = f"{state.began_at.astimezone(UTC):%m-%d %H:%M:%S}"
    line = f"{state.id}  {began}  {state.project}: {state.operation} {state.state}"
    if state.error is not None:
        return f"{line}: {state.error.message}; {state.error.remedy}".removesuffix("; ")
    if state.has_ended:
        return line
    counts = f"{state.done:,} of {state.total:,}" if state.total else f"{state.done:,}"
    rate = "" if state.rate_per_s is None else f", {state.rate_per_s:,.0f}/s"
    left = "" if state.seconds_left is None else f", {state.seconds_left:,.0f} s left"
    questions = (
        f"{state.questions.answered:,} questions answered, {state.questions.failed:,} failed"
    )
    return f"{line}: {state.stage}: {counts}{rate}{left}; {questions} since its start"


def _plan_line(plan: Estimate) -> str:
    cost = "unknown cost" if plan.cost_usd is None else f"${plan.cost_usd:,.4f}"
    refused = f"; {plan.refused:,} documents can't be processed" if plan.refused else ""
    sentences = f" besides {plan.sentences:,} sentences" if plan.sentences else ""
    return (
        f"{plan.project}: {plan.documents:,} documents, {plan.chunks:,} chunks: "
        f"{plan.reused:,} have a vector, {plan.embedded:,} would be embedded{sentences} "
        f"({plan.tokens:,} tokens, {cost}), in about {plan.seconds:,.0f} s{refused}"
    )


def _report_line(report: ReplayReport) -> str:
    fields = report.as_json()
    build = report.stages.seconds.get("build", 0.0)
    rate = f", {report.chunks / build:,.0f} chunks/s" if build else ""
    cost = "unknown cost" if fields["cost_usd"] is None else f"${fields['cost_usd']:,.4f}"
    embedded = f"{fields['embedded']:,} embedded ({fields['tokens']:,} tokens, {cost})"
    damage = "".join(f"\n  damaged: {path}" for path in report.damaged)
    gate = report.gate
    scores = f"; nDCG@10 {gate.new:.4f}, formerly {gate.live:.4f}" if gate else ""
    return (
        f"{report.project}: generation {report.generation} is live, {report.former} is kept; "
        f"{report.documents:,} documents, {report.chunks:,} chunks{rate}; {embedded}; "
        f"digest {report.digest[:16]}{scores}{damage}"
    )
