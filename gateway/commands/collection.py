"""``headrace collection``: list collections, and choose how their documents are cut."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from events.fields import Collection, problem_in_words
from gateway.clients import open_database
from gateway.output import print_json, printable, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, ProjectOption, run_client
from processors.chunking.strategies import AUTO, SEMANTIC, STRATEGIES, Strategy
from runtime.errors import UsageError
from runtime.settings import Settings
from store.documents import collections
from store.generations import catalog
from store.generations.catalog import Projects, Recipe
from store.postgres.pool import EVERY_AGENT
from store.postgres.roles import OPERATOR

__all__ = ["command"]

command = typer.Typer(rich_markup_mode=None)

_OTHERS = "(all others)"


@command.command("list")
def list_collections(project: ProjectOption = "default", json: JsonOption = False) -> None:
    """List the collections of a project, with their chunking."""
    state = run_client(lambda settings: _read(settings, project))
    rows = state.rows()
    if json:
        for row in rows:
            print_json(row)
        return
    stdout().print(table([{**row, "collection": row["collection"] or _OTHERS} for row in rows]))


@command.command("set")
def set_chunking(
    chunking: Annotated[
        str,
        typer.Option(
            metavar="STRATEGY",
            help=f"How to cut the documents: {', '.join(STRATEGIES)}.",
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the collection.")
    ] = None,
    others: Annotated[
        bool,
        typer.Option(
            "--others", help="Choose for the documents in no collection with a choice, instead."
        ),
    ] = False,
    project: ProjectOption = "default",
    json: JsonOption = False,
) -> None:
    """Choose how the documents of a collection are cut. It takes effect by a replay.

    A document in several collections is cut as the first of them by name that has a choice.
    """
    if (name is None) is not others:
        raise UsageError("name a collection, or give --others for all other documents")
    collection = "" if name is None else _valid(name)
    strategy = str(Strategy.parse(chunking))
    state = run_client(lambda settings: _choose(settings, project, collection, strategy))
    replay = state.replay_command(collection)
    if json:
        row = next(row for row in state.rows() if row["collection"] == collection)
        print_json({"project": project, **row, "replay": replay})
        return
    subject = f"collection {collection}" if collection else "all other documents"
    if replay is None:
        typer.echo(printable(f"{project}: {subject} is cut as {strategy}, as before"))
        return
    typer.echo(printable(f"{project}: {subject} will be cut as {strategy} by `{replay}`"))
    if strategy == SEMANTIC:
        typer.echo("the sentences of long paragraphs are embedded besides the chunks")


@dataclass(frozen=True)
class _State:
    """The collections of a project: their choices, sizes, and the recipe of the live index."""

    project: str
    chosen: dict[str, str]
    sizes: dict[str, collections.Size]
    recipe: Recipe

    def rows(self) -> list[dict[str, Any]]:
        """Row of each collection; the last one, with an empty name, is for all other documents."""
        names = sorted({*self.chosen, *self.sizes, *self.recipe.strategies} - {""})
        return [self._row(name) for name in (*names, "")]

    def replay_command(self, collection: str) -> str | None:
        """Command that cuts a collection as chosen. Returns None if it is cut so."""
        if self._chosen(collection) == self._live(collection):
            return None
        scope = f" --collection {shlex.quote(collection)}" if collection else ""
        return f"headrace replay --project {self.project}{scope}"

    def _row(self, name: str) -> dict[str, Any]:
        size = self.sizes.get(name)
        live, chosen = self._live(name), self._chosen(name)
        return {
            "collection": name,
            "documents": None if not name else 0 if size is None else size.documents,
            "chunks": None if not name else 0 if size is None else size.chunks,
            "chunking": live,
            "after_replay": None if chosen == live else chosen,
        }

    def _live(self, name: str) -> str:
        return self.recipe.strategies.get(name, self.recipe.strategies.get("", AUTO))

    def _chosen(self, name: str) -> str:
        return self.chosen.get(name, self.chosen.get("", AUTO))


async def _read(settings: Settings, project: str, choice: tuple[str, str] | None = None) -> _State:
    async with (
        stack(settings, with_worker=False) as running,
        open_database(running, OPERATOR) as database,
    ):
        project_id = await Projects(database).require(project)
        async with database.scope(project_id, EVERY_AGENT) as connection:
            if choice is not None:
                await collections.choose_strategy(connection, project_id, *choice)
            live = await catalog.enter_live(connection, project_id)
            return _State(
                project,
                await collections.strategies(connection, project_id),
                await collections.sizes(connection, live.id),
                live.recipe,
            )


async def _choose(settings: Settings, project: str, collection: str, strategy: str) -> _State:
    return await _read(settings, project, (collection, strategy))


def _valid(name: str) -> str:
    try:
        return TypeAdapter[str](Collection).validate_python(name)
    except ValidationError as error:
        detail = problem_in_words(error.errors(include_url=False, include_input=False)[0])
        raise UsageError(f"collection {name[:80]!r}: {detail}") from None
