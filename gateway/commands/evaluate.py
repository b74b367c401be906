"""``headrace eval``: retrieval quality, scored on questions with known answers, and compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table
from typer.core import TyperGroup

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
from events.models import Section
from gateway.clients import open_client, open_database
from gateway.commands.ask import Mode
from gateway.operations.comparison_plot import render
from gateway.operations.feedback import feedback_set
from gateway.operations.feedback import write as write_set
from gateway.operations.paired_scores import Comparison, Difference, compare_all
from gateway.output import print_json, printable, stderr, stdout, table
from gateway.progress import ShowProgress, progress
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.errors import Conflict, UsageError
from runtime.settings import Settings
from store.generations import catalog
from store.generations.catalog import Generation
from store.generations.evaluations import EvaluationRow, Evaluations, QuestionScore
from store.generations.inventory import Inventory
from store.generations.judgements import Judgements, StoredJudgement
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR

__all__ = ["command"]

T = TypeVar("T")
_Scores = dict[str, dict[str, float]]

_NAME_CHARACTERS = 100


class AnswerSection(StrEnum):
    """Sections of an answer."""

    CODE = "code"
    DOCUMENTS = "documents"


class _DirectoryGroup(TyperGroup):
    """Group that runs `run` if the first argument is not a command, so `eval DIR` works."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


command = typer.Typer(cls=_DirectoryGroup, rich_markup_mode=None)


@command.command()
def run(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="Directory with corpus.jsonl, queries.jsonl and qrels.tsv."
        ),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="Score this mode only; default: all.")] = None,
    section: Annotated[
        AnswerSection | None,
        typer.Option(help="Score this section of answers in two sections; it is not saved."),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Save the scores, to compare them with others.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Save the scores under this name, for `eval compare`.")
    ] = None,
    from_feedback: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT", help="Write a set of the judgements of PROJECT; evaluate nothing."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of that set; default: feedback-PROJECT."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Index DIR/corpus.jsonl, ask DIR/queries.jsonl, score against DIR/qrels.tsv.

    `headrace eval DIR` is the same. --from-feedback writes a set instead of asking one.
    """
    if (directory is None) == (from_feedback is None):
        raise UsageError("give either DIR or --from-feedback", "name the directory of a set")
    if from_feedback is not None:
        _write_feedback(from_feedback, to or Path(f"feedback-{from_feedback}"), json=json)
        return
    assert directory is not None
    if to is not None:
        raise UsageError("--to needs --from-feedback", "leave --to out")
    if name is not None:
        _check_name(name)
    is_saved = save or name is not None
    if is_saved and section is not None:
        raise UsageError("the scores of a section are not saved", "leave --section out")
    scores = run_client(
        lambda settings: _evaluate(
            settings,
            directory,
            mode,
            section=None if section is None else section.value,
            save=is_saved,
            name=name or "",
        )
    )
    if json:
        print_json({name: _rounded(values) for name, values in scores.items()})
        return
    shown = Table("mode", *next(iter(scores.values())), box=None, pad_edge=False)
    for scored_mode, values in scores.items():
        shown.add_row(scored_mode, *(f"{value:.4g}" for value in values.values()))
    stdout().print(shown)


@command.command("list")
def list_saved(json: JsonOption = False) -> None:
    """List the saved evaluations of all sets, newest first."""
    rows = [_row(evaluation) for evaluation in _with_evaluations(Evaluations.all)]
    if json:
        for row in rows:
            print_json(row)
    elif rows:
        stdout().print(table(rows, leave_out=["project"]))
    else:
        typer.echo("no saved evaluations")


@command.command("compare")
def compare_saved(
    before: Annotated[str, typer.Argument(metavar="A", help="Name or id from `list`.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Name or id from `list`.")],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Write a plot of the differences to this file."),
    ] = None,
    questions: Annotated[
        int, typer.Option(help="Show this many questions that changed most.", min=0)
    ] = 5,
    json: JsonOption = False,
) -> None:
    """Compare the nDCG@10 of two saved evaluations, by set and mode.

    A name stands for the newest evaluation of each set and mode that was saved under it. The
    interval is a 95 % interval of the mean difference B - A over the questions, which are paired.
    """

    async def pair(saved: Evaluations) -> list[Comparison]:
        return compare_all(await saved.named(before), await saved.named(after))

    comparisons = _with_evaluations(pair)
    if plot is not None:
        _write(plot, render(comparisons, before, after))
    if json:
        rows = [_comparison_json(comparison, questions) for comparison in comparisons]
        print_json({"before": before, "after": after, "comparisons": rows})
        return
    stdout().print(table([_comparison_row(comparison) for comparison in comparisons]))
    for comparison in comparisons:
        changed = comparison.changed(questions)
        if changed:
            typer.echo(f"\n{printable(comparison.set_name)}, {comparison.mode}: largest changes")
            stdout().print(table([_question_row(row) for row in changed]))


def _write_feedback(project: str, directory: Path, *, json: bool) -> None:
    async def read(settings: Settings) -> list[StoredJudgement]:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running) as database,
        ):
            [project_id] = (await Inventory(database).projects(project)).values()
            return await Judgements(database).of(project_id)

    feedback = feedback_set(project, run_client(read))
    write_set(feedback, directory)
    counts = {"questions": len(feedback.questions), "documents": len(feedback.uris)}
    if json:
        print_json({"directory": str(directory), **counts})
    else:
        typer.echo(
            f"{counts['questions']} questions and {counts['documents']} documents: {directory}"
        )


def _check_name(name: str) -> None:
    if not name.strip() or name.isdecimal() or len(name) > _NAME_CHARACTERS:
        raise UsageError(
            f"{name[:40]!r} can't be the name of an evaluation",
            f"use up to {_NAME_CHARACTERS} characters that are not only digits",
        )


def _with_evaluations(work: Callable[[Evaluations], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running, OPERATOR) as database,
        ):
            return await work(Evaluations(database))

    return run_client(main)


def _row(evaluation: EvaluationRow) -> dict[str, Any]:
    return {
        "id": evaluation.id,
        "name": evaluation.name or None,
        "set": evaluation.set_name,
        "project": evaluation.project,
        "mode": evaluation.mode,
        "generation": evaluation.generation,
        "questions": evaluation.questions,
        "ndcg@10": f"{evaluation.scores[f'ndcg@{DEPTH}']:.4f}",
        "saved_at": evaluation.created_at.isoformat(timespec="seconds"),
    }


def _comparison_row(comparison: Comparison) -> dict[str, Any]:
    low, high = comparison.interval or (None, None)
    return {
        "set": comparison.set_name,
        "mode": comparison.mode,
        "A": f"{comparison.before:.4f}",
        "B": f"{comparison.after:.4f}",
        "difference": f"{comparison.difference:+.4f}",
        "95_%_interval": None if low is None else f"{low:+.4f} to {high:+.4f}",
        "won": comparison.won,
        "lost": comparison.lost,
        "tied": comparison.tied,
    }


def _question_row(row: Difference) -> dict[str, Any]:
    return {
        "change": f"{row.change:+.3f}",
        "A": f"{row.before or 0.0:.3f}",
        "B": f"{row.after or 0.0:.3f}",
        "question": row.text,
    }


def _comparison_json(comparison: Comparison, questions: int) -> dict[str, Any]:
    interval = comparison.interval
    return {
        "set": comparison.set_name,
        "mode": {"before": comparison.mode_before, "after": comparison.mode_after},
        f"ndcg@{DEPTH}": {
            "before": round(comparison.before, 4),
            "after": round(comparison.after, 4),
            "difference": round(comparison.difference, 4),
            "interval": interval and [round(end, 4) for end in interval],
        },
        "won": comparison.won,
        "lost": comparison.lost,
        "tied": comparison.tied,
        "changed": [
            {
                "id": row.question,
                "text": row.text,
                "before": round(row.before or 0.0, 4),
                "after": round(row.after or 0.0, 4),
                "uris_before": row.uris_before,
                "uris_after": row.uris_after,
            }
            for row in comparison.changed(questions)
        ],
    }


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror}", "name another file"
        ) from None


async def _evaluate(
    settings: Settings,
    directory: Path,
    mode: Mode | None,
    *,
    section: Section | None,
    save: bool,
    name: str,
) -> _Scores:
    modes = MODES if mode is None else (mode.value,)
    async with stack(settings) as running, open_client(running) as client:
        with progress() as show:
            if not save:
                return await evaluate(
                    directory, client, modes=modes, section=section, progress=show
                )
            async with open_database(running, OPERATOR) as database:
                return await _save(load(directory), client, database, modes, show, name)


async def _save(
    dataset: EvaluationSet,
    client: Client,
    database: Database,
    modes: Sequence[EvaluatedMode],
    show: ShowProgress,
    name: str,
) -> _Scores:
    """Evaluate, and save the scores of each mode under a name, which may be empty.

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
        evaluation_id = await Evaluations(database).save(
            after, dataset.name, mode, values, questions[mode], name
        )
        stderr().print(f"saved as evaluation {evaluation_id} ({mode})")
    return scores


async def _live(database: Database, project: str) -> Generation:
    [project_id] = (await Inventory(database).projects(project)).values()
    async with database.scope(project_id) as connection:
        return await catalog.live(connection, project_id)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
