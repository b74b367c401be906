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

    ``_MODULES`` names the others, which are in a folder.
    """

    INDEXING = "indexing"
    ASKING = "asking"
    LANES = "lanes"
    REPLAYING = "replaying"
    REPLAY_LOAD = "replay-load"
    REPLAY_MEMORY = "replay-memory"
    BACKLOG = "backlog"
    SOAK = "soak"
    COVERAGE = "coverage"
    DOORS = "doors"
    CONTENT = "content"
    TENANTS = "tenants"
    RECALL = "recall"
    PARTITIONS = "partitions"
    REPOSITORIES = "repositories"
    WATCH = "watch"
    COST = "cost"
    PEERS = "peers"


_WITH_CHUNKS = (Measurement.ASKING, Measurement.RECALL, Measurement.REPLAY_MEMORY)
"""Benchmarks whose only size is the number of chunks."""

_MODULES = {
    Measurement.CONTENT: "content.acceptance",
    Measurement.PEERS: "peers.comparison",
    Measurement.REPLAYING: "replays.speed",
    Measurement.REPLAY_LOAD: "replays.load",
    Measurement.REPLAY_MEMORY: "replays.memory",
}


def command(
    name: Annotated[Measurement, typer.Argument()],
    sets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR...",
            help="Evaluation sets of `coverage`, the corpus of `content`, or the sources of "
            "`repositories`, and optionally those of `peers`.",
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Duration of `soak`, in minutes.", min=0.5)] = 5.0,
    seconds: Annotated[
        float | None, typer.Option(help="Duration of the load of `doors`; default: 60.", min=1)
    ] = None,
    chunks: Annotated[
        int | None,
        typer.Option(
            help="Chunks of `asking` or `doors`, `recall`, or `replay-memory`; default: 50,000, "
            "1,000,000 or 100,000.",
            min=1,
        ),
    ] = None,
    peers: Annotated[
        str, typer.Option(help="Systems that `peers` compares, with commas; default: all.")
    ] = "",
    files: Annotated[
        int | None, typer.Option(help="Files of `peers`; default: 1,000.", min=10)
    ] = None,
    steps: Annotated[str, typer.Option(help="Steps of `peers`, with commas; default: all.")] = "",
    json: JsonOption = False,
) -> None:
    """Run a benchmark on this machine; it starts its own servers and takes minutes."""
    module = _MODULES.get(name, name.replace("-", "_"))
    measure = import_module(f"bench.{module}").measure
    if name in (Measurement.COVERAGE, Measurement.REPOSITORIES):
        measure = partial(measure, sets or [])
    elif name is Measurement.CONTENT:
        measure = partial(measure, sets or [], stderr().print)
    elif name is Measurement.PEERS:
        chosen = {"peers": _words(peers), "steps": _words(steps)}
        sizes = {"files": files} if files else {}
        measure = partial(measure, sets or [], stderr().print, **chosen, **sizes)
    elif sets:
        raise UsageError(f"bench {name} does not take directories", "leave them out")
    if name is Measurement.SOAK:
        measure = partial(measure, minutes, stderr().print)
    if name is Measurement.DOORS:
        size = {"seconds": seconds, "chunks": chunks}
        measure = partial(measure, **{key: value for key, value in size.items() if value})
    elif name in _WITH_CHUNKS and chunks and not seconds:
        measure = partial(measure, chunks)
    elif seconds or chunks:
        raise UsageError(f"bench {name} has a fixed size", "leave --seconds and --chunks out")
    if name is not Measurement.PEERS and (peers or files or steps):
        raise UsageError(
            f"bench {name} compares no systems", "leave --peers, --files and --steps out"
        )
    report: Report = run_client(lambda _settings: measure())
    if json:
        rows = {"rows": [asdict(row) for row in report.rows]} if report.rows else {}
        columns = {"columns": {**report.columns}} if report.columns else {}
        figures = {"figures": {**report.figures}, "machine": {**report.machine}}
        print_json({"name": report.name, **rows, **columns, **figures})
        return
    if report.rows:
        stdout().print(table([_cells(row) for row in report.rows]))
    else:
        for figure, value in report.figures.items():
            typer.echo(f"{figure:>28}  {_formatted(value)}")
    if report.columns:
        stdout().print(table(_compared(report)))
    typer.echo(", ".join(f"{key} {value}" for key, value in report.machine.items()))


def _cells(row: Row) -> dict[str, str | None]:
    """Cells of a row in the table; a row without a figure shows the reason in its place."""
    met = {None: "left out", True: "yes", False: "no"}[row.met]
    figure = row.reason if row.figure is None else _formatted(row.figure)
    return {"what": row.what, "goal": row.goal, "met": met, "figure": figure}


def _compared(report: Report) -> list[dict[str, str | None]]:
    """Rows of the table of a comparison: a figure in the column of each system that has it."""
    names = dict.fromkeys(name for figures in report.columns.values() for name in figures)
    return [
        {
            "figure": name,
            **{
                system: _formatted(figures[name]) if name in figures else None
                for system, figures in report.columns.items()
            },
        }
        for name in names
    ]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _formatted(value: float | str) -> str:
    return value if isinstance(value, str) else format(value, ",.4g")
