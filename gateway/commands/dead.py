"""``headrace dead``: list, show, redrive and drop dead letters."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import typer

from events.streams.dead_letters import DeadLetter, DeadLetters
from events.streams.letter_selection import LetterFilter, LetterOutcome, LetterSelection
from gateway.clients import names_of, open_redis
from gateway.operations.letters import Letter
from gateway.output import print_json, printable, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

LetterArgument = Annotated[str | None, typer.Argument(metavar="ID", help="Id from `list`.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="All dead letters, or all that the filter matches.")
]
TopicOption = Annotated[str | None, typer.Option(help="Only dead letters of this topic.")]
ErrorOption = Annotated[str | None, typer.Option(help="Only those with this error.")]
LetterProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="Only those of this project.")
]
CountOption = Annotated[
    int | None,
    typer.Option(help="With --all: do nothing unless exactly this many dead letters match."),
]


@command.command("list")
def list_letters(
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 100,
    topic: TopicOption = None,
    project: LetterProjectOption = None,
    error: ErrorOption = None,
    json: JsonOption = False,
) -> None:
    """List dead letters, newest first."""
    wanted = LetterFilter(topic, project, error)
    letters = _with_selection(lambda selection: selection.page(wanted, limit=limit))
    if json:
        for letter in letters:
            print_json(_plain(letter))
    elif letters:
        for letter in letters:
            typer.echo(_lines(letter))
    else:
        typer.echo("no dead letters")


@command.command()
def show(letter: Annotated[str, typer.Argument(metavar="ID")], json: JsonOption = False) -> None:
    """Show a dead letter: its reason and the event itself."""
    fields = _plain(_with_letters(lambda dead: dead.show(letter)))
    if json:
        print_json(fields)
        return
    for name, value in fields.items():
        typer.echo(f"{name:>10}  " + printable(str(value)).replace("\n", f"\n{'':12}"))


@command.command()
def count(json: JsonOption = False) -> None:
    """Count dead letters by topic, error and project."""
    counts = [dataclasses.asdict(row) for row in _with_selection(LetterSelection.counts)]
    for row in counts:
        row["oldest_at"], row["newest_at"] = (
            row[name].isoformat(timespec="seconds") for name in ("oldest_at", "newest_at")
        )
        if json:
            print_json(row)
    if counts and not json:
        stdout().print(table(counts))
    elif not counts and not json:
        typer.echo("no dead letters")


def _ending(operation: Literal["redrive", "drop"]) -> Callable[..., None]:
    """Make a command that redrives or drops one letter, or those of a filter."""

    def end(
        letter: LetterArgument = None,
        every: AllOption = False,
        topic: TopicOption = None,
        project: LetterProjectOption = None,
        error: ErrorOption = None,
        count: CountOption = None,
    ) -> None:
        is_redrive = operation == "redrive"
        done = "redriven" if is_redrive else "dropped"
        wanted = LetterFilter(topic, project, error)
        letter_id = _one_or_all(letter, wanted, count, every=every)

        async def end_many(selection: LetterSelection) -> Sequence[LetterOutcome]:
            work = selection.redrive if is_redrive else selection.drop
            return await work(wanted, count=count)

        if letter_id is None:
            typer.echo(f"{done}: {_changed(_with_selection(end_many))}")
        elif is_redrive:
            typer.echo(f"redriven as {_with_letters(lambda dead: _redriven(dead, letter_id))}")
        else:
            _with_letters(lambda dead: dead.drop(letter_id))
            typer.echo("dropped: 1")

    return end


command.command("redrive", help="Process a dead letter again at its position in the log.")(
    _ending("redrive")
)
command.command("drop", help="Delete a dead letter permanently.")(_ending("drop"))


async def _redriven(dead: DeadLetters, letter_id: str) -> str:
    """Redrive a letter; return the token of its change, or the new id of an entry without one."""
    letter = await dead.show(letter_id)
    entry_id = await dead.redrive(letter_id)
    return letter.token or entry_id


def _changed(outcomes: Sequence[LetterOutcome]) -> int:
    """Number of letters that no other operation took first."""
    return sum(outcome.outcome != "gone" for outcome in outcomes)


def _one_or_all(
    letter: str | None, wanted: LetterFilter, count: int | None, *, every: bool
) -> str | None:
    """Raise UsageError unless either ID or --all is given, and a filter with --all only."""
    if (letter is None) != every:
        raise UsageError("give either the ID of a dead letter or --all")
    if letter is not None and (wanted != LetterFilter() or count is not None):
        raise UsageError("--topic, --project, --error and --count need --all", "leave out the ID")
    return letter


def _with_selection(work: Callable[[LetterSelection], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with stack(settings, with_worker=False) as running, open_redis(running) as redis:
            return await work(LetterSelection(redis, names_of(running)))

    return run_client(main)


def _with_letters(work: Callable[[DeadLetters], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with stack(settings, with_worker=False) as running, open_redis(running) as redis:
            return await work(DeadLetters(redis, names_of(running)))

    return run_client(main)


def _plain(letter: DeadLetter) -> dict[str, Any]:
    fields = dataclasses.asdict(letter)
    del fields["dead_entry_id"]
    return {
        "id": letter.id,
        **fields,
        "event": letter.event.decode(errors="replace"),
        "first_at": letter.first_at.isoformat(),
        "last_at": letter.last_at.isoformat(),
    }


def _lines(letter: DeadLetter) -> str:
    """Format a dead letter as two lines: a table column is too narrow for reason and remedy."""
    when = letter.last_at.isoformat(timespec="seconds")
    uri = Letter.of(letter).uri
    document = f"  {uri} in {letter.project}" if uri else ""
    tries = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
    reason = " ".join(f"{letter.error} after {tries}: {letter.detail}".split())
    return printable(f"{letter.id}  {when}{document}\n    {reason}")
