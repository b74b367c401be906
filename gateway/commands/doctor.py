"""``headrace doctor``: is the environment sound, and the index what the log says?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import typer

from gateway.output import print_json, printable
from gateway.session import JsonOption, run_client
from gateway.stack import require_database, stack
from processors.recipes import model_options, recipe_of
from processors.reconciling.environment import Environment
from processors.reconciling.findings import Condition, State
from runtime.settings import Settings

__all__ = ["command"]

_MARKS = {State.OK: "ok", State.WARNING: "warning", State.PROBLEM: "PROBLEM"}


def command(json: JsonOption = False) -> None:
    """Check servers, models and storage, and reconcile the index with the log.

    Exits 0 where nothing is wrong, 1 where something is.
    """
    found = run_client(_examine)
    if json:
        print_json({"environment": [dataclasses.asdict(one) for one in found]})
    else:
        _print(found)
    if any(one.state is State.PROBLEM for one in found):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> list[Condition]:
    async with stack(settings, with_worker=False) as running:
        return await _environment(require_database(running)).judge()


def _environment(settings: Settings) -> Environment:
    return Environment(
        redis_url=settings.redis_url,
        database_url=settings.database_url,
        worker_role=settings.worker_role,
        home=settings.home_directory,
        archive_url=_archive_url(settings),
        models=recipe_of(settings).model_names,
        options=model_options(settings),
    )


def _archive_url(settings: Settings) -> str:
    url: Any = getattr(settings, "archive_url", "")
    return str(url) or str(settings.home_directory / "archive")


def _print(found: Sequence[Condition]) -> None:
    for one in found:
        typer.echo(f"{_MARKS[one.state]:>8}  {one.name:<22} {printable(one.detail)}")
        if one.cure:
            typer.echo(f"{'':>32} → {printable(one.cure)}")
