"""``headrace keys``: keys with which publishers sign the changes of a project."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from events.signatures import SigningKey
from gateway.clients import open_database
from gateway.output import print_json, stdout
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from processors.recipes import recipe_of
from runtime.settings import Settings
from store.generations.catalog import Projects
from store.keys.publisher_keys import KeyRecord, KeyRegister
from store.postgres.roles import OPERATOR

__all__ = ["command"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

RequiredProject = Annotated[str, typer.Option("--project", "-p", help="Name of the project.")]


@command.command()
def add(project: RequiredProject, json: JsonOption = False) -> None:
    """Create a key and print it; it is not shown again.

    From then on, the project requires signed changes.
    """
    key = SigningKey.new()
    _with_register(lambda register: register.add(project, key))
    setting = f"{key.id}:{key.secret}"
    if json:
        print_json({"project": project, "key_id": key.id, "signing_key": setting})
    else:
        typer.echo(f"HEADRACE_SIGNING_KEY={setting}")


@command.command("list")
def list_keys(project: RequiredProject, json: JsonOption = False) -> None:
    """List a project's keys, without their secrets."""
    records = _with_register(lambda register: register.list(project))
    if json:
        for record in records:
            print_json(_plain(record))
    elif records:
        stdout().print(_table(records))
    else:
        typer.echo(f"{project} has no keys, so it accepts unsigned changes")


@command.command()
def retire(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id from `list`.")],
    project: RequiredProject,
    last: Annotated[
        bool,
        typer.Option(
            "--last", help="Retire even the last active key; unsigned changes are accepted again."
        ),
    ] = False,
) -> None:
    """Reject changes signed with a key, starting within seconds.

    Changes that were applied before stay.
    """
    _with_register(lambda register: register.retire(project, key, also_last=last))
    typer.echo(f"retired: {key}")


def _with_register(work: Callable[[KeyRegister], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running, OPERATOR) as database,
        ):
            return await work(KeyRegister(database, Projects(database, recipe_of(running))))

    return run_client(main)


def _plain(record: KeyRecord) -> dict[str, str | None]:
    retired_at = record.retired_at
    return {
        "key_id": record.key_id,
        "created_at": record.created_at.isoformat(),
        "retired_at": None if retired_at is None else retired_at.isoformat(),
    }


def _table(records: list[KeyRecord]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("id", "since", "retired"):
        table.add_column(column, no_wrap=True)
    for record in records:
        retired_at = record.retired_at
        retired = "" if retired_at is None else retired_at.isoformat(timespec="seconds")
        since = record.created_at.isoformat(timespec="seconds")
        table.add_row(*map(Text, (record.key_id, since, retired)))
    return table
