"""``headrace costs``: ledger of the requests to remote models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from gateway.clients import open_database
from gateway.output import print_json, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.settings import Settings
from store.documents.costs import Costs, DailyCost
from store.generations.inventory import Inventory

__all__ = ["command"]


def command(
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="This project only; default: all projects."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days (UTC), today included.", min=1, max=36_500)] = 7,
    json: JsonOption = False,
) -> None:
    """Show tokens and costs of embeddings, contexts and reranking by remote models, by day.

    A cost is empty if LiteLLM's table lacks the price of a model. Embeddings of questions are not
    included.
    """
    costs = run_client(partial(_read, project=project, days=days))
    if json:
        for cost in costs:
            print_json(cost.as_json())
    elif costs:
        stdout().print(table([_row(cost) for cost in costs]))
        typer.echo(_total(costs))
    else:
        typer.echo("no requests to remote models")


async def _read(settings: Settings, project: str | None, days: int) -> list[DailyCost]:
    async with (
        stack(settings, with_worker=False) as running,
        open_database(running) as database,
    ):
        return await Costs(database).daily(await Inventory(database).projects(project), days)


def _row(cost: DailyCost) -> dict[str, Any]:
    cost_usd = None if cost.cost_usd is None else f"{cost.cost_usd:.6f}"
    return cost.as_json() | {"cost_usd": cost_usd}


def _total(costs: Sequence[DailyCost]) -> str:
    total = sum(cost.cost_usd or 0.0 for cost in costs)
    unknown = sum(cost.cost_usd is None for cost in costs)
    suffix = f", and unknown costs in {unknown} rows" if unknown else ""
    return f"together {total:.6f} US dollars{suffix}"
