"""``headrace demo``: the whole way, from files to answers, on real servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from events import Filters, Kind, QueryAnswer
from gateway.answers import citation, print_answer
from gateway.clients import open_client, open_store
from gateway.commands.sync import describe
from gateway.output import print_json, printable, stderr, stdout
from gateway.progress import progress
from gateway.session import JsonOption, run_client
from gateway.signing import check_signing_key
from gateway.stack import stack
from gateway.syncing import Destination, SyncReport, sync_source
from runtime.errors import UsageError
from runtime.settings import Settings
from sources import Source, open_source

__all__ = ["ABOUT_ANYTHING", "ABOUT_HEADRACE", "command"]

_DOCUMENTS = Filters(kinds=(Kind.MARKDOWN,))
ABOUT_HEADRACE = {
    "Which disaster loses publishes of the last second?": _DOCUMENTS,
    "How long do dead letters stay?": _DOCUMENTS,
    "Why does the embedded Postgres run as nobody when we are root?": _DOCUMENTS,
    "Where are stream and key names built?": Filters(uri_prefix="events/"),
}
"""Questions, and where their answers are looked for: not in this file, which is indexed too."""
ABOUT_ANYTHING = dict.fromkeys(
    ("What is this about?", "How is it installed and started?", "How are errors handled?"),
    Filters(),
)
_HERE = Path(__file__).parents[2]
_SHOWN = 1


@dataclass(frozen=True)
class _Outcome:
    report: SyncReport
    indexing_seconds: float
    answers: dict[str, tuple[QueryAnswer, float]]


def command(
    path: Annotated[
        Path | None, typer.Argument(help="What to index; default: Headrace's own repository.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Index a directory, ask it a few questions, print the answers with their sources.

    Servers and the index stay under HEADRACE_HOME, so that a second run only indexes what changed.
    """
    directory = (path or _own_repository()).resolve()
    source = open_source(directory)
    outcome = run_client(lambda settings: _demo(settings, source, directory))
    if json:
        print_json(_plain(outcome))
    else:
        _print(stdout(), outcome)


def _own_repository() -> Path:
    """Raises UsageError where Headrace was installed without its repository."""
    if not (_HERE / "pyproject.toml").is_file():
        raise UsageError("Headrace's own repository is not here: name a directory to index")
    return _HERE


async def _demo(settings: Settings, source: Source, directory: Path) -> _Outcome:
    project, questions = _plan(directory)
    stderr().print("starting Postgres, Redis and a worker")
    async with (
        stack(settings) as running,
        open_store(running) as store,
        open_client(running, store) as client,
    ):
        await check_signing_key(running, project)
        began_at = perf_counter()
        with progress() as show:
            report = await sync_source(
                source,
                Destination(project),
                client,
                store,
                max_bytes=running.max_document_bytes,
                wait=True,
                show=show,
            )
        seconds = perf_counter() - began_at
        answers = {}
        for question, filters in questions.items():
            asked_at = perf_counter()
            answer = await client.ask(project, question, filters=filters, limit=3)
            answers[question] = answer, (perf_counter() - asked_at) * 1000
    return _Outcome(report, seconds, answers)


def _plan(directory: Path) -> tuple[str, Mapping[str, Filters]]:
    """The project that a path goes to, and what is asked there."""
    if directory == _HERE:
        return "demo", ABOUT_HEADRACE
    return f"demo-{_slug(directory)}", ABOUT_ANYTHING


def _slug(directory: Path) -> str:
    """A directory's name as a part of a project's name."""
    name = directory.name.lower()
    return "".join(one if one.isascii() and one.isalnum() else "-" for one in name)[:50] or "root"


def _print(console: Console, outcome: _Outcome) -> None:
    report = printable(describe(outcome.report))
    console.print(f"{report}, in {outcome.indexing_seconds:.1f} s", markup=False)
    for question, (answer, milliseconds) in outcome.answers.items():
        console.print()
        console.print(Text(question, style="bold"), Text(f"({milliseconds:.0f} ms)", style="dim"))
        best = answer.model_copy(update={"results": answer.results[:_SHOWN]})
        print_answer(console, best, question)
        others = ", ".join(citation(one.citation) for one in answer.results[_SHOWN:])
        if others:
            console.print(Text(f"see also {others}", style="dim"))


def _plain(outcome: _Outcome) -> dict[str, Any]:
    return {
        "sync": outcome.report.to_json(),
        "indexing_s": round(outcome.indexing_seconds, 3),
        "answers": [
            {
                "question": question,
                "citations": [citation(one.citation) for one in answer.results],
                "content": answer.results[0].content if answer.results else None,
                "ms": round(milliseconds, 1),
            }
            for question, (answer, milliseconds) in outcome.answers.items()
        ],
    }
