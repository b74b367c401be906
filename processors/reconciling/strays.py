"""Vector indexes of generations that are gone: kept up to date for nobody, and in no project."""

from __future__ import annotations

from collections.abc import Sequence

from processors.reconciling.findings import Condition
from processors.replaying.opening import Tools
from store.inspecting_indexes import drop_strays, indexes_by_name

__all__ = ["judge_strays"]

_NAME = "postgres.strays"


async def judge_strays(
    tools: Tools, owner_url: str | None, projects: Sequence[str], *, repair: bool
) -> list[Condition]:
    """One condition if there are any; the repair drops them.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    names = await _strays(tools, projects)
    if names and repair and owner_url is not None:
        await drop_strays(owner_url, names)
        names = await _strays(tools, projects)
    if not names:
        return []
    cure = (
        "headrace doctor --repair"
        if owner_url is not None
        else "set HEADRACE_OWNER_DATABASE_URL and run `headrace doctor --repair`"
    )
    return [Condition.problem(_NAME, f"indexes of lost generations: {', '.join(names)}", cure)]


async def _strays(tools: Tools, projects: Sequence[str]) -> list[str]:
    """Indexes are listed before generations, so that none looks lost that has just begun."""
    async with tools.database.connection() as connection:
        indexes = await indexes_by_name(connection)
    generation_ids = {
        generation.id
        for project in projects
        for generation in await tools.store.generations(project)
    }
    return [
        name
        for name, generation_id in indexes.items()
        if generation_id is not None and generation_id not in generation_ids
    ]
