"""Names of projects and models, and the ids that represent them in every row."""

from __future__ import annotations

import json
from datetime import timedelta

from runtime.errors import ConfigurationError, UsageError
from runtime.intervals import TTLCache
from store.generations.catalog import Recipe
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["REMEMBERED", "Models", "Projects", "unknown_project"]

REMEMBERED = timedelta(seconds=2)
"""Longest time for which a process may still use the id of a deleted project."""

_QUERIES = named("projects")


def unknown_project(name: str) -> UsageError:
    """Error of a command or query that names a project which does not exist."""
    return UsageError(
        f"there is no project {name[:80]!r}",
        "check its name, or publish to it first (`headrace project list` lists the projects)",
    )


class Projects:
    """Ids of projects, cached for a short time.

    ``recipe``: recipe of a new project's first generation; without it, no project can be created.
    """

    def __init__(self, database: Database, recipe: Recipe | None = None) -> None:
        self._database = database
        self._recipe = recipe
        self._ids: TTLCache[str, int] = TTLCache(REMEMBERED.total_seconds())

    async def find(self, name: str) -> int | None:
        """The project's id. Returns None if the project does not exist."""
        cached = self._ids.get(name)
        if cached is not None:
            return cached
        async with self._database.connection() as connection:
            project_id: int | None = await connection.fetchval(_QUERIES["find_project"], name)
        if project_id is None:
            return None
        return self._remember(name, project_id)

    async def require(self, name: str) -> int:
        """The project's id.

        Raises:
            UsageError: the project does not exist.
        """
        project_id = await self.find(name)
        if project_id is None:
            raise unknown_project(name)
        return project_id

    async def ensure(self, name: str) -> int:
        """The project's id; creates the project, with a live generation, if it does not exist."""
        return await self.find(name) or await self._create(name)

    async def all(self) -> dict[str, int]:
        """Id by name of every project."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["list_projects"])
        return {row["name"]: row["id"] for row in rows}

    async def _create(self, name: str) -> int:
        assert self._recipe is not None, "a project needs a recipe for its first generation"
        recipe = self._recipe
        models = json.dumps(dict(recipe.models))
        async with self._database.connection() as connection:
            created = await connection.fetchval(
                _QUERIES["ensure_project"],
                name,
                recipe.model,
                models,
                recipe.chunking,
                recipe.tokens,
            )
        return self._remember(name, created)

    def _remember(self, name: str, project_id: int) -> int:
        self._ids.put(name, project_id)
        return project_id


class Models:
    """Ids of embedding models, cached."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._models: dict[str, tuple[int, int | None]] = {}

    async def width(self, name: str) -> int | None:
        """Width of the model's stored vectors. Returns None if there are none."""
        async with self._database.connection() as connection:
            width: int | None = await connection.fetchval(_QUERIES["model_width"], name)
        return width

    async def ensure(self, name: str, dimensions: int | None) -> int:
        """The model's id. ``dimensions`` is None if the width of its vectors is not known yet.

        Raises:
            ConfigurationError: the model's stored vectors have another width.
        """
        if name not in self._models or (dimensions and self._models[name][1] is None):
            async with self._database.connection() as connection:
                row = await connection.fetchrow(_QUERIES["ensure_model"], name, dimensions)
            self._models[name] = row["id"], row["dimensions"]
        model_id, width = self._models[name]
        if dimensions is not None and width != dimensions:
            raise ConfigurationError(
                f"{name} returned {dimensions} dimensions, but its stored vectors have {width}",
                f"set HEADRACE_MODEL_DIMENSIONS to {width}, or embed the project again "
                f"(`headrace replay --model {name}@{dimensions}`)",
            )
        return model_id
