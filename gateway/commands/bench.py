"""``headrace bench``: benchmarks that start their own servers."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from bench.figures import Report
from gateway.output import print_json, stderr
from gateway.session import JsonOption, run_client
from runtime.errors import UsageError

__all__ = ["Measurement", "command"]


class Measurement(StrEnum):
    """Benchmarks: each is a module in ``bench/`` (with _ for -) that has a function ``measure``."""

    INDEXING = "indexing"
    ASKING = "asking"
    LANES = "lanes"
    REPLAYING = "replaying"
    REPLAY_LOAD = "replay-load"
    BACKLOG = "backlog"
    SOAK = "soak"
    COVERAGE = "coverage"
    DOORS = "doors"


def command(
    name: Annotated[Measurement, typer.Argument()],
    sets: Annotated[
        list[Path] | None, typer.Argument(metavar="DIR...", help="Evaluation sets of `coverage`.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Duration of `soak`, in minutes.", min=0.5)] = 5.0,
    seconds: Annotated[
        float | None, typer.Option(help="Duration of the load of `doors`; default: 60.", min=1)
    ] = None,
    chunks: Annotated[
        int | None, typer.Option(help="Chunks in the index of `doors`; default: 50,000.", min=1)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a benchmark on this machine; it starts its own servers and takes minutes."""
    measure = import_module(f"bench.{name.replace('-', '_')}").measure
    if name is Measurement.COVERAGE:
        measure = partial(measure, sets or [])
    elif sets:
        raise UsageError(f"bench {name} does not take directories", "leave them out")
    if name is Measurement.SOAK:
        measure = partial(measure, minutes, stderr().print)
    if name is Measurement.DOORS:
        size = {"seconds": seconds, "chunks": chunks}
        measure = partial(measure, **{key: value for key, value in size.items() if value})
    elif seconds or chunks:
        raise UsageError(f"bench {name} has a fixed size", "leave --seconds and --chunks out")
    report: Report = run_client(lambda _settings: measure())
    if json:
        print_json(
            {"name": report.name, "figures": {**report.figures}, "machine": {**report.machine}}
        )
        return
    for figure, value in report.figures.items():
        typer.echo(f"{figure:>28}  {value if isinstance(value, str) else format(value, ',.4g')}")
    typer.echo(", ".join(f"{key} {value}" for key, value in report.machine.items()))
