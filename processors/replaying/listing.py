"""Which generations there are, and how large each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from processors.replaying.opening import Tools
from store.generations import Generation
from store.projects import unknown_project

__all__ = ["Listed", "list_generations", "projects_of"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A generation with its size: living documents, and chunks."""

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
    """The project that was named, or all of them.

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
    """All generations of one project or of all, oldest first.

    Raises:
        UsageError: no such project.
    """
    return [
        Listed(name, generation, *await tools.standings.sizes(generation))
        for name in await projects_of(tools, project)
        for generation in await tools.store.generations(name)
    ]
