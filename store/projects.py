"""Names of projects and models, and the numbers that stand for them in every row."""

from __future__ import annotations

from runtime.errors import ConfigurationError
from store.database import Database
from store.named_queries import named

__all__ = ["Models", "Projects"]

_QUERIES = named("projects")


class Projects:
    """Ids of projects; a found one is remembered, since it never changes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: dict[str, int] = {}

    async def find(self, name: str) -> int | None:
        """The project's id, or None: nothing was ever written to it."""
        return await self._id(name, "find_project")

    async def ensure(self, name: str) -> int:
        """The project's id; creates the project where there is none."""
        project_id = await self.find(name) or await self._id(name, "ensure_project")
        assert project_id is not None
        return project_id

    async def all(self) -> dict[str, int]:
        """Id by name of every project."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["list_projects"])
        return {row["name"]: row["id"] for row in rows}

    async def _id(self, name: str, query: str) -> int | None:
        if name not in self._ids:
            async with self._database.connection() as connection:
                found = await connection.fetchval(_QUERIES[query], name)
            if found is None:
                return None
            self._ids[name] = found
        return self._ids[name]


class Models:
    """Ids of embedding models, remembered."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[int, int]] = {}

    async def ensure(self, name: str, dimensions: int) -> int:
        """The model's id.

        Raises:
            ConfigurationError: the model's stored vectors have another width.
        """
        if name not in self._known:
            async with self._database.connection() as connection:
                row = await connection.fetchrow(_QUERIES["ensure_model"], name, dimensions)
            self._known[name] = row["id"], row["dimensions"]
        model_id, width = self._known[name]
        if width != dimensions:
            raise ConfigurationError(
                f"{name} gave {dimensions} dimensions, but the vectors stored for it have {width}: "
                "set HEADRACE_MODEL_DIMENSIONS back, or choose another model"
            )
        return model_id
