"""``headrace eval``: retrieval quality, scored on questions with known answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench.evaluation import (
    DEPTH,
    MODES,
    EvaluationSet,
    evaluate,
    index,
    load,
    ndcg,
    recall,
    reciprocal_rank,
    score,
)
from bench.evaluation import Mode as EvaluatedMode
from events.client.client import Client
from gateway.clients import open_client, open_database
from gateway.commands.ask import Mode
from gateway.output import print_json, stdout
from gateway.progress import ShowProgress, progress
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.errors import Conflict
from runtime.settings import Settings
from store.generations import catalog
from store.generations.catalog import Generation
from store.generations.evaluations import Evaluations, QuestionScore
from store.generations.inventory import Inventory
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR

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
    save: Annotated[
        bool, typer.Option("--save", help="Save the scores, to compare them with others.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Index DIR/corpus.jsonl, ask DIR/queries.jsonl, score against DIR/qrels.tsv."""
    scores = run_client(lambda settings: _evaluate(settings, directory, mode, save=save))
    if json:
        print_json({name: _rounded(values) for name, values in scores.items()})
        return
    table = Table("mode", *next(iter(scores.values())), box=None, pad_edge=False)
    for name, values in scores.items():
        table.add_row(name, *(f"{value:.4g}" for value in values.values()))
    stdout().print(table)


async def _evaluate(
    settings: Settings, directory: Path, mode: Mode | None, *, save: bool
) -> _Scores:
    modes = MODES if mode is None else (mode.value,)
    async with stack(settings) as running, open_client(running) as client:
        with progress() as show:
            if not save:
                return await evaluate(directory, client, modes=modes, progress=show)
            async with open_database(running, OPERATOR) as database:
                return await _save(load(directory), client, database, modes, show)


async def _save(
    dataset: EvaluationSet,
    client: Client,
    database: Database,
    modes: Sequence[EvaluatedMode],
    show: ShowProgress,
) -> _Scores:
    """Evaluate, and save the scores of each mode.

    Raises:
        Conflict: another generation became live while questions were asked; nothing is saved.
    """
    questions: defaultdict[str, list[QuestionScore]] = defaultdict(list)

    def record(mode: EvaluatedMode, query: str, uris: Sequence[str]) -> None:
        grades = dataset.grades[query]
        answered = QuestionScore(
            id=query,
            text=dataset.queries[query],
            ndcg=ndcg(uris, grades),
            recall=recall(uris, grades),
            mrr=reciprocal_rank(uris, grades),
            uris=uris[:DEPTH],
        )
        questions[mode].append(answered)

    project = await index(dataset, client, progress=show)
    before = await _live(database, project)
    scores = await score(dataset, client, project, modes=modes, progress=show, record=record)
    after = await _live(database, project)
    if before.id != after.id:
        raise Conflict(
            f"generation {after.id} of {project} became live during the evaluation",
            "evaluate again",
        )
    for mode, values in scores.items():
        await Evaluations(database).save(after, dataset.name, mode, values, questions[mode])
    return scores


async def _live(database: Database, project: str) -> Generation:
    [project_id] = (await Inventory(database).projects(project)).values()
    async with database.scope(project_id) as connection:
        return await catalog.live(connection, project_id)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
