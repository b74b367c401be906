"""``headrace dead``: list, show, redrive and drop dead letters."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from events.streams.dead_letters import DeadLetter, DeadLetters
from gateway.clients import names_of, open_redis
from gateway.output import print_json, printable
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

LetterArgument = Annotated[str | None, typer.Argument(metavar="ID", help="Id from `list`.")]
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters.")]


@command.command("list")
def list_letters(
    limit: Annotated[int, typer.Option(help="Show at most this many.")] = 100,
    topic: Annotated[str | None, typer.Option(help="Only dead letters of this topic.")] = None,
    json: JsonOption = False,
) -> None:
    """List dead letters, newest first."""
    letters = _with_letters(lambda dead: dead.list(limit, topic))
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
def redrive(letter: LetterArgument = None, every: AllOption = False) -> None:
    """Process a dead letter again at its position in the log."""
    if _one_or_all(letter, every=every) is None:
        count = _with_letters(lambda dead: dead.redrive_all())
        typer.echo(f"redriven: {count}")
    else:
        entry_id = _with_letters(lambda dead: dead.redrive(str(letter)))
        typer.echo(f"redriven as {entry_id}")


@command.command()
def drop(letter: LetterArgument = None, every: AllOption = False) -> None:
    """Delete a dead letter permanently."""
    letter_id = _one_or_all(letter, every=every)
    count = _with_letters(_drop_all if letter_id is None else lambda dead: _drop(dead, letter_id))
    typer.echo(f"dropped: {count}")


def _one_or_all(letter: str | None, *, every: bool) -> str | None:
    """Raise UsageError unless exactly one of ID and --all is given."""
    if (letter is None) != every:
        raise UsageError("give either the ID of a dead letter or --all")
    return letter


async def _drop(dead: DeadLetters, letter: str) -> int:
    await dead.drop(letter)
    return 1


async def _drop_all(dead: DeadLetters) -> int:
    count = 0
    while letters := await dead.list():
        for letter in letters:
            await dead.drop(letter.id)
        count += len(letters)
    return count


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
    tries = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
    reason = " ".join(f"{letter.error} after {tries}: {letter.detail}".split())
    return printable(f"{letter.id}  {when}\n    {reason}")
