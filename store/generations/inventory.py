"""Lists of generations, with their sizes and the time from which each can be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from runtime import protocol_limits
from runtime.errors import NotFound, UnknownProject, UsageError
from store.generations import catalog
from store.generations.catalog import Generation, unknown_project
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["Inventory", "ListedGeneration", "droppable_at"]

_QUERIES = named("generations")


@dataclass(frozen=True, slots=True)
class ListedGeneration:
    """A generation with its number of documents (without deleted ones) and chunks.

    ``droppable_at``: time from which no query can read it any more; None if it is live, or if it
    never was. ``expires_at``: time from which the archiver drops it; None: never.
    """

    project: str
    generation: Generation
    documents: int
    chunks: int
    droppable_at: datetime | None = None
    expires_at: datetime | None = None

    def kept_for(self, time: timedelta | None) -> Self:
        """The same, as it is kept for a time after its replacement; None: forever."""
        if time is None or self.droppable_at is None or self.generation.state != "former":
            return self
        expires_at = self.droppable_at - protocol_limits.QUERY_DEADLINE + time
        return replace(self, expires_at=expires_at)

    def as_json(self) -> dict[str, Any]:
        """Plain values; times in ISO 8601."""
        generation = self.generation
        return {
            "project": self.project,
            "generation": generation.id,
            "state": generation.state,
            "model": generation.recipe.model,
            "models": dict(generation.recipe.models),
            "chunking": generation.recipe.chunking,
            "strategies": dict(generation.recipe.strategies),
            "tokens": generation.recipe.tokens,
            "context": generation.recipe.context,
            "scope": dict(generation.scope),
            "documents": self.documents,
            "chunks": self.chunks,
            "created_at": generation.created_at.isoformat(),
            "switched_at": _iso(generation.switched_at),
            "droppable_at": _iso(self.droppable_at),
            "expires_at": _iso(self.expires_at),
        }


class Inventory:
    """The generations of all projects.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def projects(self, project: str | None = None) -> dict[str, int]:
        """Id by name of one project, or of all.

        Raises:
            UnknownProject: no such project.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(named("projects")["list_projects"])
        ids = {row["name"]: row["id"] for row in rows}
        if project is None:
            return ids
        if project not in ids:
            error = unknown_project(project)
            raise UnknownProject(error.message, error.remedy)
        return {project: ids[project]}

    async def all(self, project: str | None = None) -> list[ListedGeneration]:
        """List the generations of one project, or of all projects, oldest first.

        Raises:
            UnknownProject: no such project.
        """
        ids = await self.projects(project)
        return [row for name in sorted(ids) for row in await self._listed(name, ids[name])]

    async def find(self, generation_id: int) -> tuple[str, Generation]:
        """Find a generation of any project; return the project's name and the generation.

        Raises:
            NotFound: no generation has this id.
        """
        for name, project_id in sorted((await self.projects()).items()):
            async with self._database.scope(project_id) as connection:
                generation = await catalog.find(connection, project_id, generation_id)
            if generation is not None:
                return name, generation
        raise NotFound(
            f"there is no generation {generation_id}", "`headrace replay list` lists all"
        )

    async def former(self, project: str) -> Generation:
        """The generation that was live before the current one.

        Raises:
            UnknownProject: no such project.
            UsageError: there is no former generation.
        """
        [project_id] = (await self.projects(project)).values()
        async with self._database.scope(project_id) as connection:
            generations = await catalog.listed(connection, project_id)
        former = [generation for generation in generations if generation.state == "former"]
        if not former:
            raise UsageError(
                f"{project} has no former generation to go back to",
                "one is kept after each `headrace replay`",
            )
        return max(
            former,
            key=lambda generation: (generation.switched_at or generation.created_at, generation.id),
        )

    async def _listed(self, project: str, project_id: int) -> list[ListedGeneration]:
        async with self._database.scope(project_id) as connection:
            generations = await catalog.listed(connection, project_id)
        return [
            ListedGeneration(
                project,
                generation,
                *await self._sizes(generation),
                droppable_at(generation, generations),
            )
            for generation in generations
        ]

    async def _sizes(self, generation: Generation) -> tuple[int, int]:
        """Number of documents (not deleted) and of chunks in a generation."""
        scope = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*scope) as connection:
            row = await connection.fetchrow(_QUERIES["sizes"], generation.id)
        return row["documents"], row["chunks"]


def droppable_at(generation: Generation, generations: Sequence[Generation]) -> datetime | None:
    """Time from which no query can read a former generation of a project any more.

    Queries began to read another one at the first switch after its own. The switch to a generation
    that was dropped or became live again is not recorded any more; such a switch can only have been
    earlier. Returns None for a generation that is live, or that never was.
    """
    if generation.state == "live" or generation.switched_at is None:
        return None
    switch_times = [other.switched_at for other in generations if other.switched_at is not None]
    live = next((other.switched_at for other in generations if other.state == "live"), None)
    replaced_at = min((at for at in switch_times if at > generation.switched_at), default=live)
    return None if replaced_at is None else replaced_at + protocol_limits.QUERY_DEADLINE


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
