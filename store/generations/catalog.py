"""Catalogue of projects, models and generations: names, ids, recipes, and the live generation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Self

import asyncpg

from runtime.errors import ConfigurationError, Unavailable, UnknownProject
from runtime.intervals import TTLCache
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database, readable_in_scope

__all__ = [
    "REMEMBERED",
    "Entered",
    "Generation",
    "GenerationState",
    "Models",
    "ProjectGone",
    "Projects",
    "Recipe",
    "begin",
    "count_vectors",
    "enter_live",
    "enter_to_write",
    "find",
    "listed",
    "live",
    "live_generations",
    "mark_dropping",
    "note",
    "note_calibration",
    "remove",
    "sample_headings",
    "unknown_project",
]

_QUERIES = named("generations")

GenerationState = Literal["building", "live", "former", "dropping"]


class ProjectGone(Unavailable):
    """The project was deleted; a new attempt looks for another project of the same name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The choices that an index is built with.

    ``model`` embeds the kinds of content that ``models`` does not list. ``chunking`` is a version,
    optionally with a limit in tokens (``2``, ``2:128``). ``tokens`` is the version of the keyword
    retriever's tokeniser. ``strategies`` of chunking are by collection; that of '' is for documents
    in none of these. ``context`` is the language model that writes a context for each chunk; if it
    is empty, chunks have none.
    """

    model: str
    models: Mapping[str, str] = field(default_factory=dict)
    chunking: str = "2"
    tokens: int = 1
    strategies: Mapping[str, str] = field(default_factory=dict)
    context: str = ""

    def model_of(self, kind: str) -> str:
        """Name of the model that embeds a kind of content."""
        return self.models.get(kind, self.model)

    def strategy_of(self, collections: Iterable[str]) -> str:
        """Strategy of a document in some collections: that of the first by name that has one."""
        chosen = sorted(self.strategies.keys() & set(collections))
        return self.strategies.get(chosen[0] if chosen else "", "auto")

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every model in use, each once."""
        return tuple(dict.fromkeys([self.model, *self.models.values()]))


@dataclass(frozen=True, slots=True)
class Generation:
    """One index of a project. ``scope``: limits of its replay; ``detail``: the replay's results.

    ``calibration``: measurements of its models, by name of the model.
    """

    id: int
    project_id: int
    state: GenerationState
    recipe: Recipe
    created_at: datetime
    switched_at: datetime | None = None
    scope: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Create from a row of the table."""
        return cls(
            id=row["id"],
            project_id=row["project_id"],
            state=row["state"],
            recipe=Recipe(
                row["model"],
                json.loads(row["models"]),
                row["chunking"],
                row["tokens"],
                json.loads(row["strategies"]),
                row["context"],
            ),
            created_at=row["created_at"],
            switched_at=row["switched_at"],
            scope=json.loads(row["scope"]),
            detail=json.loads(row["detail"] or "{}"),
            calibration=json.loads(row["calibration"]),
        )


async def live(connection: asyncpg.Connection, project_id: int) -> Generation:
    """The live generation, which answers queries. The connection must be in the project's scope.

    Raises:
        ProjectGone: the project is deleted.
    """
    row = await connection.fetchrow(_QUERIES["live_generation"], project_id)
    return Generation.of_row(_existing(row))


async def live_generations(
    connection: asyncpg.Connection, project_ids: Collection[int]
) -> dict[int, Generation]:
    """The live generations of several projects, by project id; deleted projects are absent.

    The connection needs no scope.
    """
    rows = await connection.fetch(_QUERIES["live_generations"], sorted(project_ids))
    return {row["project_id"]: Generation.of_row(row) for row in rows}


async def enter_live(connection: asyncpg.Connection, project_id: int) -> Generation:
    """Enter the scope of the live generation, for the rest of the transaction, and return it.

    Raises:
        ProjectGone: the project is deleted.
    """
    row = await connection.fetchrow(_QUERIES["enter_live_generation"], project_id)
    return Generation.of_row(_existing(row))


@dataclass(frozen=True, slots=True)
class Entered:
    """The live generation of a project, ids for new chunks, and rows of stored documents."""

    generation: Generation
    chunk_ids: Sequence[int]
    documents: Sequence[Mapping[str, Any]]


async def enter_to_write(
    connection: asyncpg.Connection, project_id: int, agent: str, uris: Sequence[str], chunks: int
) -> Entered:
    """Enter the scope of a project's live generation as a writer, which a switch waits for.

    The transaction must be one without a scope (``Database.transaction``), and leaves the scope of
    the project that it has entered before. The stored documents are locked until it ends.

    Raises:
        ProjectGone: the project is deleted.
    """
    row = await connection.fetchrow(
        _QUERIES["enter_to_write"],
        project_id,
        Lock.SWITCH,
        agent,
        readable_in_scope(agent),
        chunks,
        uris,
    )
    documents = json.loads(_existing(row)["documents"])
    return Entered(Generation.of_row(row), row["chunk_ids"], documents)


def _existing(row: asyncpg.Record | None) -> asyncpg.Record:
    """Raise ProjectGone if a project has no live generation."""
    if row is None:
        raise ProjectGone("the project was just deleted", "try again")
    return row


async def find(
    connection: asyncpg.Connection, project_id: int, generation_id: int
) -> Generation | None:
    """A generation of the project by id. Returns None if it does not exist."""
    row = await connection.fetchrow(_QUERIES["find_generation"], project_id, generation_id)
    return None if row is None else Generation.of_row(row)


async def listed(connection: asyncpg.Connection, project_id: int) -> list[Generation]:
    """All generations of a project, oldest first."""
    rows = await connection.fetch(_QUERIES["list_generations"], project_id)
    return [Generation.of_row(row) for row in rows]


async def begin(
    connection: asyncpg.Connection, project_id: int, recipe: Recipe, scope: Mapping[str, Any]
) -> Generation:
    """Create an empty, ``building`` generation of a project; there is at most one at a time.

    Raises:
        asyncpg.UniqueViolationError: the project already has one.
    """
    row = await connection.fetchrow(
        _QUERIES["begin_generation"],
        project_id,
        recipe.model,
        json.dumps(dict(recipe.models)),
        recipe.chunking,
        recipe.tokens,
        json.dumps(dict(scope)),
        json.dumps(dict(recipe.strategies)),
        recipe.context,
    )
    return Generation.of_row(row)


async def note(
    connection: asyncpg.Connection, generation: Generation, detail: Mapping[str, Any]
) -> None:
    """Store the findings of a replay about a generation."""
    await connection.execute(
        _QUERIES["note_generation"], generation.project_id, generation.id, json.dumps(dict(detail))
    )


async def note_calibration(
    connection: asyncpg.Connection,
    generation: Generation,
    calibration: Mapping[str, Mapping[str, float]],
) -> None:
    """Store the measurements of a generation's models."""
    values = json.dumps({model: dict(measured) for model, measured in calibration.items()})
    await connection.execute(
        _QUERIES["note_calibration"], generation.project_id, generation.id, values
    )


async def count_vectors(
    connection: asyncpg.Connection, generation_id: int, model: str, limit: int
) -> int:
    """Number of chunks with a vector of the model, at most ``limit``."""
    sql = _QUERIES["count_vectors"].format(generation_id=int(generation_id))
    count: int = await connection.fetchval(sql, model, limit)
    return count


async def sample_headings(
    connection: asyncpg.Connection, generation_id: int, count: int
) -> list[tuple[str, str]]:
    """Kind of the document and heading of up to ``count`` chunks, spread over the generation."""
    rows = await connection.fetch(_QUERIES["sample_headings"], generation_id, count)
    return [(row["kind"], row["heading"]) for row in rows]


async def mark_dropping(connection: asyncpg.Connection, generation: Generation) -> bool:
    """Mark a generation ``dropping``; false if it is live."""
    status = await connection.execute(
        _QUERIES["mark_dropping"], generation.project_id, generation.id
    )
    return str(status) != "UPDATE 0"


async def remove(connection: asyncpg.Connection, generation: Generation) -> None:
    """Remove the record of a ``dropping`` generation that has no rows any more."""
    await connection.execute(_QUERIES["remove_generation"], generation.id)


REMEMBERED = timedelta(seconds=2)
"""Longest time for which a process may still use the id of a deleted project."""

_PROJECTS = named("projects")


def unknown_project(name: str) -> UnknownProject:
    """Error of a command or query that names a project which does not exist."""
    return UnknownProject(
        f"there is no project {name[:80]!r}",
        "check its name, or publish to it first (`headrace project list` lists the projects)",
    )


class Projects:
    """Ids of projects, cached for a short time.

    ``recipe``: recipe of a new project's first generation, or a function that returns it; the
    function may take long. Without it, no project can be created.
    """

    def __init__(
        self, database: Database, recipe: Recipe | Callable[[], Recipe] | None = None
    ) -> None:
        self._database = database
        self._recipe = recipe
        self._ids: TTLCache[str, int] = TTLCache(REMEMBERED.total_seconds())

    async def find(self, name: str) -> int | None:
        """The project's id. Returns None if the project does not exist."""
        return (await self.find_all([name])).get(name)

    async def find_all(self, names: Collection[str]) -> dict[str, int]:
        """Ids of projects by name; projects that do not exist are absent."""
        ids = {name: cached for name in names if (cached := self._ids.get(name)) is not None}
        missing = sorted(set(names) - ids.keys())
        if missing:
            async with self._database.connection() as connection:
                rows = await connection.fetch(_PROJECTS["find_projects"], missing)
            found_ids = {row["name"]: row["id"] for row in rows if row["id"] is not None}
            for name, project_id in found_ids.items():
                self._remember(name, project_id)
            ids |= found_ids
        return ids

    async def require(self, name: str) -> int:
        """The project's id.

        Raises:
            UnknownProject: the project does not exist.
        """
        project_id = await self.find(name)
        if project_id is None:
            raise unknown_project(name)
        return project_id

    async def ensure(self, name: str) -> int:
        """The project's id; creates the project, with a live generation, if it does not exist."""
        return (await self.ensure_all([name]))[name]

    async def ensure_all(self, names: Collection[str]) -> dict[str, int]:
        """Ids of projects by name; creates those that do not exist."""
        ids = await self.find_all(names)
        for name in sorted(set(names) - ids.keys()):
            ids[name] = await self._create(name)
        return ids

    async def all(self) -> dict[str, int]:
        """Id by name of every project."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PROJECTS["list_projects"])
        return {row["name"]: row["id"] for row in rows}

    async def _create(self, name: str) -> int:
        assert self._recipe is not None, "a project needs a recipe for its first generation"
        if not isinstance(self._recipe, Recipe):
            self._recipe = await asyncio.to_thread(self._recipe)
        recipe = self._recipe
        models = json.dumps(dict(recipe.models))
        async with self._database.connection() as connection:
            created = await connection.fetchval(
                _PROJECTS["ensure_project"],
                name,
                recipe.model,
                models,
                recipe.chunking,
                recipe.tokens,
                recipe.context,
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
            width: int | None = await connection.fetchval(_PROJECTS["model_width"], name)
        return width

    async def ensure(self, name: str, dimensions: int | None) -> int:
        """The model's id. ``dimensions`` is None if the width of its vectors is not known yet.

        Raises:
            ConfigurationError: the model's stored vectors have another width.
        """
        if name not in self._models or (dimensions and self._models[name][1] is None):
            async with self._database.connection() as connection:
                row = await connection.fetchrow(_PROJECTS["ensure_model"], name, dimensions)
            self._models[name] = row["id"], row["dimensions"]
        model_id, width = self._models[name]
        if dimensions is not None and width != dimensions:
            raise ConfigurationError(
                f"{name} returned {dimensions} dimensions, but its stored vectors have {width}",
                f"set HEADRACE_MODEL_DIMENSIONS to {width}, or embed the project again "
                f"(`headrace replay --model {name}@{dimensions}`)",
            )
        return model_id
