"""``headrace demo``: index documents and answer questions about them, on real servers."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from events.client.operator_client import OperatorClient
from events.models import QueryAnswer
from gateway.answer_view import print_results
from gateway.clients import check_signing_key, open_client, open_database
from gateway.demonstration import Demonstration, choose
from gateway.output import print_json, printable, stderr, stdout
from gateway.progress import VECTOR, ShowProgress, progress
from gateway.servers import configured, stack
from gateway.session import JsonOption, run_client
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport, describe
from gateway.sync.sync import Until, size_limits, sync_source
from processors.recipes import recipe_of
from runtime.errors import Unavailable
from runtime.settings import Settings
from store.documents.pending import PendingVectors
from store.generations.catalog import Projects
from store.store import Store

__all__ = ["command"]

_RESULTS = 3
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 120.0
_QUIET = Console(quiet=True)


@dataclass(frozen=True)
class _Reply:
    """An answer with its question and its response time in milliseconds."""

    question: str
    answer: QueryAnswer
    milliseconds: float

    @property
    def citations(self) -> list[str]:
        """Citations, best first."""
        return [result.citation.place for result in self.answer.results]


@dataclass
class _Record:
    """Record of a demo; ``seconds`` holds times since the command began."""

    began_at: float = field(default_factory=perf_counter)
    report: SyncReport | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    first: list[_Reply] = field(default_factory=list)
    last: list[_Reply] = field(default_factory=list)

    def mark(self, stage: str) -> float:
        """Record and return the time at which a step was first reached."""
        return self.seconds.setdefault(stage, perf_counter() - self.began_at)


@dataclass(frozen=True)
class _Tools:
    """Connections to the servers of one demo."""

    settings: Settings
    client: OperatorClient
    store: Store
    pending: PendingVectors


def command(
    path: Annotated[
        Path | None,
        typer.Argument(help="Directory to index; default: a part of Headrace's own repository."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Index documents, and ask a few questions as soon as they are searchable by keyword.

    The questions are asked again when every chunk has its vector. Servers' data and the index stay
    under HEADRACE_HOME, so a second run only indexes what changed.
    """
    record = _Record()
    console = _QUIET if json else stdout()

    async def run(settings: Settings) -> None:
        await _run(settings, choose(path, settings.home_directory), record, console)

    run_client(run)
    if json:
        print_json(_plain(record))


async def _run(
    settings: Settings, demonstration: Demonstration, record: _Record, console: Console
) -> None:
    stderr().print("starting Postgres, Redis and a worker")
    async with (
        stack(settings) as running,
        open_database(running) as database,
    ):
        recipe = recipe_of(running)
        store = Store(database, recipe)
        async with open_client(running, store) as client:
            pending = PendingVectors(database, Projects(database, recipe))
            tools = _Tools(running, client, store, pending)
            await check_signing_key(running, demonstration.project)
            stderr().print(f"ready after {record.mark('ready'):.1f} s")
            await _index(tools, demonstration, record, console)
            await _ask_twice(tools, demonstration, record, console)
    _print_next(console, settings, demonstration)


async def _index(
    tools: _Tools, demonstration: Demonstration, record: _Record, console: Console
) -> None:
    with progress() as show:
        record.report = await sync_source(
            demonstration.source,
            Destination(demonstration.project),
            tools.client,
            tools.store,
            sizes=size_limits(tools.settings),
            until=Until.KEYWORDS,
            show=show,
        )
    for line in describe(record.report):
        console.print(printable(line), markup=False)
    console.print(f"all searchable by keyword after {record.mark('searchable'):.1f} s")


async def _ask_twice(
    tools: _Tools, demonstration: Demonstration, record: _Record, console: Console
) -> None:
    for question in demonstration.questions:
        reply = await _ask(tools.client, demonstration.project, question)
        record.mark("answered")
        record.first.append(reply)
        _print_reply(console, reply)
    if all(reply.answer.coverage == 1 for reply in record.first):
        record.last = record.first
        record.mark("vectors")
        return
    with progress() as show:
        await _wait_for_vectors(tools.pending, demonstration.project, show)
    console.print(f"all searchable by vector after {record.mark('vectors'):.1f} s")
    for before in record.first:
        reply = await _ask(tools.client, demonstration.project, before.question)
        record.last.append(reply)
        _print_difference(console, before, reply)


async def _ask(client: OperatorClient, project: str, question: str) -> _Reply:
    asked_at = perf_counter()
    answer = await client.ask(project, question, limit=_RESULTS)
    return _Reply(question, answer, (perf_counter() - asked_at) * 1000)


async def _wait_for_vectors(pending: PendingVectors, project: str, show: ShowProgress) -> None:
    """Raise Unavailable if no chunk gets its vector for two minutes."""
    fewest, changed_at = sys.maxsize, perf_counter()
    while True:
        counts = await pending.counts(project)
        show(VECTOR, counts.chunks - counts.pending, counts.chunks, unit="chunks")
        if not counts.pending:
            return
        if counts.pending < fewest:
            fewest, changed_at = counts.pending, perf_counter()
        elif perf_counter() - changed_at > _PATIENCE_SECONDS:
            raise Unavailable(
                f"{counts.pending:,} chunks have no vector, and none was added for "
                f"{_PATIENCE_SECONDS:g} s",
                "see worker.log under HEADRACE_HOME",
            )
        await asyncio.sleep(_POLL_SECONDS)


def _print_reply(console: Console, reply: _Reply) -> None:
    _print_question(console, reply)
    print_results(console, reply.answer.results[:1], reply.question, explain=True)
    others = ", ".join(reply.citations[1:])
    if not reply.citations:
        console.print(Text("nothing found yet: no chunk contains these words", style="dim"))
    if others:
        console.print(Text(printable(f"see also {others}"), style="dim"))


def _print_difference(console: Console, before: _Reply, reply: _Reply) -> None:
    best = "".join(before.citations[:1]) or "nothing"
    if reply.citations[:1] != before.citations[:1]:
        _print_reply(console, reply)
        console.print(Text(printable(f"before: {best}"), style="dim"))
        return
    _print_question(console, reply)
    console.print(Text(printable(f"the same answer: {best}"), style="dim"))


def _print_question(console: Console, reply: _Reply) -> None:
    share = f"{reply.answer.coverage:.0%} of the chunks have vectors"
    facts = f"({reply.milliseconds:.0f} ms, {share})"
    console.print()
    console.print(Text(reply.question, style="bold"), Text(facts, style="dim"))


def _print_next(console: Console, settings: Settings, demonstration: Demonstration) -> None:
    console.print()
    console.print(Text("Try next", style="bold"))
    for line in _next(demonstration, has_servers=configured(settings) is not None):
        console.print(Text(printable(f"  {line}")), soft_wrap=True)


def _next(demonstration: Demonstration, *, has_servers: bool) -> Iterator[str]:
    """Shell commands that work after this demo; the servers that it started have stopped."""
    programs = Path(sys.executable).parent
    program = programs / "headrace"
    if program.exists() and shutil.which("headrace") != str(program):
        yield f'export PATH={shlex.quote(str(programs))}:"$PATH"    # in each terminal'
    if not has_servers:
        yield "headrace up    # servers and a worker, until Ctrl-C; the rest in another terminal"
    question = demonstration.next_question
    yield f'headrace ask --project {demonstration.project} "{question}"'
    yield "headrace sync . --project mine --wait    # indexes the current directory"
    yield "headrace status --watch"


def _plain(record: _Record) -> dict[str, Any]:
    return {
        "sync": record.report.to_json() if record.report else None,
        **{f"{stage}_s": round(seconds, 3) for stage, seconds in record.seconds.items()},
        "answers": [
            {"question": first.question, "first": _plain_reply(first), "last": _plain_reply(last)}
            for first, last in zip(record.first, record.last, strict=True)
        ],
    }


def _plain_reply(reply: _Reply) -> dict[str, Any]:
    results = reply.answer.results
    return {
        "citations": reply.citations,
        "content": results[0].content if results else None,
        "coverage": reply.answer.coverage,
        "ms": round(reply.milliseconds, 1),
    }
