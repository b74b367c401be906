"""``headrace bench``: benchmarks that start their own servers."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from bench.figures import Report, Row
from gateway.output import print_json, stderr, stdout, table
from gateway.session import JsonOption, run_client
from runtime.errors import UsageError

__all__ = ["Measurement", "command"]


class Measurement(StrEnum):
    """Benchmarks: each is a module in ``bench/`` (with _ for -) that has a function ``measure``.

    That of ``content`` is in ``bench/content/acceptance.py``.
    """

    INDEXING = "indexing"
    ASKING = "asking"
    LANES = "lanes"
    REPLAYING = "replaying"
    REPLAY_LOAD = "replay-load"
    BACKLOG = "backlog"
    SOAK = "soak"
    COVERAGE = "coverage"
    DOORS = "doors"
    CONTENT = "content"
    TENANTS = "tenants"
    REPOSITORIES = "repositories"
    WATCH = "watch"
    COST = "cost"


def command(
    name: Annotated[Measurement, typer.Argument()],
    sets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR...",
            help="Evaluation sets of `coverage`, the corpus of `content`, or the sources of "
            "`repositories`.",
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Duration of `soak`, in minutes.", min=0.5)] = 5.0,
    seconds: Annotated[
        float | None, typer.Option(help="Duration of the load of `doors`; default: 60.", min=1)
    ] = None,
    chunks: Annotated[
        int | None,
        typer.Option(help="Chunks of `doors` or `tenants`; default: 50,000 or 1,000,000.", min=1),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a benchmark on this machine; it starts its own servers and takes minutes."""
    module = "content.acceptance" if name is Measurement.CONTENT else name.replace("-", "_")
    measure = import_module(f"bench.{module}").measure
    if name in (Measurement.COVERAGE, Measurement.REPOSITORIES):
        measure = partial(measure, sets or [])
    elif name is Measurement.CONTENT:
        measure = partial(measure, sets or [], stderr().print)
    elif sets:
        raise UsageError(f"bench {name} does not take directories", "leave them out")
    if name is Measurement.SOAK:
        measure = partial(measure, minutes, stderr().print)
    if name is Measurement.DOORS:
        size = {"seconds": seconds, "chunks": chunks}
        measure = partial(measure, **{key: value for key, value in size.items() if value})
    elif name is Measurement.TENANTS and chunks and not seconds:
        measure = partial(measure, chunks)
    elif seconds or chunks:
        raise UsageError(f"bench {name} has a fixed size", "leave --seconds and --chunks out")
    report: Report = run_client(lambda _settings: measure())
    if json:
        rows = {"rows": [asdict(row) for row in report.rows]} if report.rows else {}
        figures = {"figures": {**report.figures}, "machine": {**report.machine}}
        print_json({"name": report.name, **rows, **figures})
        return
    if report.rows:
        stdout().print(table([_cells(row) for row in report.rows]))
    else:
        for figure, value in report.figures.items():
            typer.echo(f"{figure:>28}  {_formatted(value)}")
    typer.echo(", ".join(f"{key} {value}" for key, value in report.machine.items()))


def _cells(row: Row) -> dict[str, str | None]:
    """Cells of a row in the table; a row without a figure shows the reason in its place."""
    met = {None: "left out", True: "yes", False: "no"}[row.met]
    figure = row.reason if row.figure is None else _formatted(row.figure)
    return {"what": row.what, "goal": row.goal, "met": met, "figure": figure}


def _formatted(value: float | str) -> str:
    return value if isinstance(value, str) else format(value, ",.4g")
