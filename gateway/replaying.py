"""What ``headrace replay`` does for one project or all, and how it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from gateway.output import print_json, printable
from gateway.progress import ShowProgress
from processors.replaying.choosing import Choice
from processors.replaying.findings import NotSwitched
from processors.replaying.listing import Listed, projects_of
from processors.replaying.opening import Tools
from processors.replaying.planning import Estimate
from processors.replaying.replayer import Gate, Replay
from processors.replaying.reporting import ReplayReport
from processors.replaying.returning import Returned

__all__ = [
    "generations_table",
    "plan_projects",
    "replay_projects",
    "tell_differences",
    "tell_plans",
    "tell_reports",
    "tell_returned",
]

_SHOWN_DIFFERENCES = 20
_SHORT = ("id", "state", "documents", "chunks", "since")

One = TypeVar("One", Estimate, ReplayReport)


async def plan_projects(
    tools: Tools, project: str | None, choice: Choice, show: ShowProgress
) -> list[Estimate]:
    """What a replay of each project would embed."""
    projects = await projects_of(tools, project)
    return [await Replay(tools, one, choice, None, show).plan() for one in projects]


async def replay_projects(
    tools: Tools,
    project: str | None,
    choice: Choice,
    gate: Gate | None,
    show: ShowProgress,
    reports: list[ReplayReport],
) -> None:
    """Replay one project after the other; ``reports`` gets what became of each."""
    for one in await projects_of(tools, project):
        work = Replay(tools, one, choice, gate, show)
        reports.append(work.report)
        await work.run()


def tell_plans(plans: Sequence[Estimate], json: bool) -> None:
    """Print what would be embedded."""
    _tell(plans, json, _plan_line)


def tell_reports(reports: Sequence[ReplayReport], json: bool) -> None:
    """Print what was done."""
    _tell(reports, json, _report_line)


def tell_differences(error: NotSwitched, reports: Sequence[ReplayReport], json: bool) -> None:
    """Print why a generation didn't go live, document by document."""
    if json:
        differences = [
            {"agent": one.agent or None, "uri": one.uri, "reason": one.reason}
            for one in error.differences
        ]
        found = {"error": str(error), "differences": differences}
        print_json(_joined([one.as_json() for one in reports]) | found)
        return
    for one in error.differences[:_SHOWN_DIFFERENCES]:
        typer.echo(printable(f"  {one}"))
    more = len(error.differences) - _SHOWN_DIFFERENCES
    if more > 0:
        typer.echo(f"  and {more:,} more (--json names all)")


def tell_returned(returned: Returned, json: bool) -> None:
    """Print what a switch did."""
    if json:
        print_json(returned.as_json())
        return
    typer.echo(
        f"{returned.project}: generation {returned.generation} is live, "
        f"{returned.former} is kept ({returned.caught_up:,} documents caught up, "
        f"{returned.seconds:.2f} s)"
    )


def generations_table(found: Sequence[Listed]) -> Table:
    """A row for each generation; times are in UTC."""
    columns = ("project", "id", "state", "model", "chunking", "documents", "chunks", "since")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        # a long name goes on in the next line; it must be readable
        table.add_column(column, overflow="fold", no_wrap=column in _SHORT)
    for one in found:
        made = one.generation
        models = [made.recipe.model, *(f"{k}: {m}" for k, m in made.recipe.models.items())]
        when = f"{(made.switched_at or made.created_at).astimezone(UTC):%m-%d %H:%M}"
        sizes = f"{one.documents:,}", f"{one.chunks:,}"
        cells = (one.project, str(made.id), made.state, ", ".join(models), made.recipe.chunking)
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *sizes, when)))
    return table


def _tell(found: Sequence[One], json: bool, line: Callable[[One], str]) -> None:
    if json:
        print_json(_joined([one.as_json() for one in found]))
    elif not found:
        typer.echo("no projects yet: `headrace sync PATH` makes one")
    else:
        for one in found:
            typer.echo(printable(line(one)))


def _joined(found: list[dict[str, Any]]) -> dict[str, Any]:
    """One object: of a single project its own fields; of several, each by itself."""
    return {**(found[0] if len(found) == 1 else {}), "projects": found}


def _plan_line(plan: Estimate) -> str:
    cost = "at a price that isn't known" if plan.cost_usd is None else f"${plan.cost_usd:,.4f}"
    refused = f"; {plan.refused:,} documents can't be processed" if plan.refused else ""
    return (
        f"{plan.project}: {plan.documents:,} documents, {plan.chunks:,} chunks: "
        f"{plan.reused:,} have a vector, {plan.embedded:,} would be embedded "
        f"({plan.tokens:,} tokens, {cost}), in about {plan.seconds:,.0f} s{refused}"
    )


def _report_line(report: ReplayReport) -> str:
    found = report.as_json()
    build = report.stages.seconds.get("build", 0.0)
    rate = f", {report.chunks / build:,.0f} chunks/s" if build else ""
    cost = "unknown cost" if found["cost_usd"] is None else f"${found['cost_usd']:,.4f}"
    embedded = f"{found['embedded']:,} embedded ({found['tokens']:,} tokens, {cost})"
    damage = "".join(f"\n  damaged: {path}" for path in report.damaged)
    gate = report.gate
    scores = f"; nDCG@10 {gate.new:.4f}, formerly {gate.live:.4f}" if gate else ""
    return (
        f"{report.project}: generation {report.generation} is live, {report.former} is kept; "
        f"{report.documents:,} documents, {report.chunks:,} chunks{rate}; {embedded}; "
        f"digest {report.digest[:16]}{scores}{damage}"
    )
