"""Costs and contexts by the commands that a person types."""

from __future__ import annotations

from pathlib import Path

from store.documents.costs import Usage, add
from store.generations.catalog import Projects, Recipe
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.writes import opened


async def test_costs_by_project_and_model(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Costs are rows of JSON or a table with a sum; a project is chosen, and must exist."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    assert "no requests" in (await cli.typed("costs")).stdout
    async with opened(database.operator_url) as worker:
        projects = Projects(worker, Recipe("local/hash-384", context="openai/gpt-4o-mini"))
        for project, cost_usd in (("alpha", 0.25), ("beta", None)):
            project_id = await projects.ensure(project)
            async with worker.scope(project_id) as connection:
                usage = Usage(2, 100, 50, 10, cost_usd)
                await add(connection, project_id, "m", "context", {"live:0:1-0": usage})
    row = (await cli("costs", "--json", "--project", "alpha", "--days", "1")).json
    assert row | {"day": ""} == {
        "project": "alpha",
        "day": "",
        "model": "m",
        "purpose": "context",
        "changes": 1,
        "requests": 2,
        "tokens_in": 100,
        "tokens_cached": 50,
        "tokens_out": 10,
        "cost_usd": 0.25,
    }
    shown = await cli("costs")
    assert "together 0.250000 US dollars, and unknown costs in 1 rows" in shown.stdout
    assert "no project 'gamma'" in (await cli("costs", "--project", "gamma")).line

    [project] = (await cli("status", "--project", "alpha", "--json")).json["projects"]
    context = project["context"], project["contexts_waiting"], project["contexts_without"]
    assert context == ("openai/gpt-4o-mini", 0, 0)
    assert "openai/gpt-4o-mini" in (await cli("status")).stdout
