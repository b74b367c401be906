"""``headrace dead``: what could not be processed, and what to do with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from events import DeadLetter, DeadLetters
from gateway.clients import names_of, open_redis
from gateway.output import print_json, printable
from gateway.session import JsonOption, run_client
from gateway.stack import stack
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["command"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

LetterArgument = Annotated[str | None, typer.Argument(metavar="ID", help="As `list` prints it.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


@command.command("list")
def list_letters(
    limit: Annotated[int, typer.Option(help="At most so many, the newest first.")] = 100,
    topic: Annotated[str | None, typer.Option(help="Of this topic only.")] = None,
    json: JsonOption = False,
) -> None:
    """List them, the newest first."""
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
    """Show one: the reason, and the event itself."""
    found = _plain(_with_letters(lambda dead: dead.show(letter)))
    if json:
        print_json(found)
        return
    for name, value in found.items():
        typer.echo(f"{name:>10}  " + printable(str(value)).replace("\n", f"\n{'':12}"))


@command.command()
def redrive(letter: LetterArgument = None, every: AllOption = False) -> None:
    """Try again: put the event back where it was in the log's order."""
    if _one_or_all(letter, every=every) is None:
        count = _with_letters(lambda dead: dead.redrive_all())
        typer.echo(f"redriven: {count}")
    else:
        entry_id = _with_letters(lambda dead: dead.redrive(str(letter)))
        typer.echo(f"redriven as {entry_id}")


@command.command()
def drop(letter: LetterArgument = None, every: AllOption = False) -> None:
    """Forget it for good."""
    one = _one_or_all(letter, every=every)
    count = _with_letters(_drop_all if one is None else lambda dead: _drop(dead, one))
    typer.echo(f"dropped: {count}")


def _one_or_all(letter: str | None, *, every: bool) -> str | None:
    """Raises UsageError unless exactly one of both is given."""
    if (letter is None) != every:
        raise UsageError("name one dead letter by its ID, or say --all")
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
    """Two lines, since a column of a terminal is too narrow for a reason and its cure."""
    when = letter.last_at.isoformat(timespec="seconds")
    tries = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
    reason = " ".join(f"{letter.error} after {tries}: {letter.detail}".split())
    return printable(f"{letter.id}  {when}\n    {reason}")
