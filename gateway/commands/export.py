"""``headrace export``: write a project's index as Parquet, and load it into Qdrant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.clients import open_database
from gateway.output import print_json, printable
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.errors import UsageError
from runtime.settings import Settings
from store.export import qdrant
from store.export.parquet import Exported, arrow, export_parquet
from store.export.snapshot import ExportSnapshot
from store.generations.inventory import Inventory
from store.postgres.pool import EVERY_AGENT

__all__ = ["command"]


def command(
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New directory for the files.")],
    generation: Annotated[
        int | None, typer.Option(metavar="ID", help="Id from `replay list`; default: the live one.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Include the private documents of all agents.")
    ] = False,
    to_qdrant: Annotated[
        str | None,
        typer.Option(
            metavar="URL|PATH",
            help="Also load the chunks into Qdrant; a DIR that is exported already is only loaded.",
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Collection in Qdrant; default: the project's name.")
    ] = None,
    api_key: Annotated[
        str, typer.Option(envvar="QDRANT_API_KEY", show_envvar=True, help="API key of Qdrant.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Write the index of a project as Parquet: documents, and chunks with their vectors.

    It is read from one snapshot, while changes and questions continue. An interrupted export leaves
    no directory, and an interrupted load is continued by the same command.
    """
    arrow()
    client = None if to_qdrant is None else qdrant.connect(to_qdrant, api_key)
    exported = None
    if client is None or not directory.exists():
        exported = run_client(
            lambda settings: _export(settings, project, directory, generation, is_private=private)
        )
    elif qdrant.describe(directory)["project"] != project:
        raise UsageError(f"{directory} is an export of another project", "name a new directory")
    name = collection or project
    loaded = None if client is None else qdrant.load(client, directory, name)
    if client is not None:
        client.close()
    if json:
        counts = {} if exported is None else exported.as_json()
        print_json(counts | {"directory": str(directory), "loaded": loaded})
        return
    if exported is not None:
        typer.echo(
            printable(
                f"{directory}: {exported.documents:,} documents, {exported.chunks:,} chunks and "
                f"{exported.vectors:,} vectors of generation {exported.generation}"
            )
        )
    if loaded is not None:
        typer.echo(printable(f"{loaded:,} chunks are in the collection {name} of Qdrant"))


async def _export(
    settings: Settings, project: str, directory: Path, generation: int | None, *, is_private: bool
) -> Exported:
    async with (
        stack(settings, with_worker=False) as running,
        open_database(running) as database,
    ):
        [project_id] = (await Inventory(database).projects(project)).values()
        agent = EVERY_AGENT if is_private else ""
        async with ExportSnapshot.open(database, project_id, generation, agent) as snapshot:
            return await export_parquet(snapshot, project, directory, is_private=is_private)
