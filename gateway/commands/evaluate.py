"""``headrace eval``: retrieval quality, scored on questions with known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench.evaluation import MODES, evaluate
from gateway.clients import open_client
from gateway.commands.ask import Mode
from gateway.output import print_json, stdout
from gateway.progress import progress
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.settings import Settings

__all__ = ["command"]

_Scores = dict[str, dict[str, float]]


def command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory with corpus.jsonl, queries.jsonl and qrels.tsv."
        ),
    ],
    mode: Annotated[Mode | None, typer.Option(help="Score this mode only; default: all.")] = None,
    json: JsonOption = False,
) -> None:
    """Index DIR/corpus.jsonl, ask DIR/queries.jsonl, score against DIR/qrels.tsv."""
    scores = run_client(lambda settings: _evaluate(settings, directory, mode))
    if json:
        print_json({name: _rounded(values) for name, values in scores.items()})
        return
    table = Table("mode", *next(iter(scores.values())), box=None, pad_edge=False)
    for name, values in scores.items():
        table.add_row(name, *(f"{value:.4g}" for value in values.values()))
    stdout().print(table)


async def _evaluate(settings: Settings, directory: Path, mode: Mode | None) -> _Scores:
    modes = MODES if mode is None else (mode.value,)
    async with stack(settings) as running, open_client(running) as client:
        with progress() as show:
            return await evaluate(directory, client, modes=modes, progress=show)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
