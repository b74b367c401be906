"""List of generations with their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from processors.replaying.opening import Tools
from store.generations import Generation
from store.projects import unknown_project

__all__ = ["Listed", "list_generations", "projects_of"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A generation with its number of documents (without deleted ones) and chunks."""

    project: str
    generation: Generation
    documents: int
    chunks: int

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
            "tokens": generation.recipe.tokens,
            "scope": dict(generation.scope),
            "documents": self.documents,
            "chunks": self.chunks,
            "created_at": generation.created_at.isoformat(),
            "switched_at": None
            if generation.switched_at is None
            else generation.switched_at.isoformat(),
        }


async def projects_of(tools: Tools, project: str | None) -> list[str]:
    """The named project, or all projects if ``project`` is None.

    Raises:
        UsageError: no such project.
    """
    projects = sorted(await tools.projects.all())
    if project is None:
        return projects
    if project not in projects:
        raise unknown_project(project)
    return [project]


async def list_generations(tools: Tools, project: str | None) -> list[Listed]:
    """List all generations of one project, or of all projects, oldest first.

    Raises:
        UsageError: no such project.
    """
    return [
        Listed(name, generation, *await tools.standings.sizes(generation))
        for name in await projects_of(tools, project)
        for generation in await tools.store.generations(name)
    ]
