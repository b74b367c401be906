"""Orphaned vector indexes: their generation no longer exists."""

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
    """Return one condition if there are orphaned indexes; ``repair`` drops them.

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
    detail = f"indexes of generations that no longer exist: {', '.join(names)}"
    return [Condition.problem(_NAME, detail, cure)]


async def _strays(tools: Tools, projects: Sequence[str]) -> list[str]:
    """List indexes before generations, so that the index of a new generation isn't an orphan."""
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
