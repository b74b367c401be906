"""Generations: the indexes of a project, their recipes, and which of them is live."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

import asyncpg

from runtime.errors import Unavailable
from store.postgres.named_queries import named

__all__ = [
    "Generation",
    "GenerationState",
    "ProjectGone",
    "Recipe",
    "begin",
    "enter_live",
    "find",
    "listed",
    "live",
    "mark_dropping",
    "note",
    "remove",
]

_QUERIES = named("generations")

GenerationState = Literal["building", "live", "former", "dropping"]


class ProjectGone(Unavailable):
    """The project was deleted; a new attempt looks for another project of the same name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The choices that an index is built with.

    ``model`` embeds the kinds of content that ``models`` does not list. ``chunking`` is a version,
    optionally with a limit in tokens (``1``, ``1:128``). ``tokens`` is the version of the keyword
    retriever's tokeniser.
    """

    model: str
    models: Mapping[str, str] = field(default_factory=dict)
    chunking: str = "1"
    tokens: int = 1

    def model_of(self, kind: str) -> str:
        """Name of the model that embeds a kind of content."""
        return self.models.get(kind, self.model)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every model in use, each once."""
        return tuple(dict.fromkeys([self.model, *self.models.values()]))


@dataclass(frozen=True, slots=True)
class Generation:
    """One index of a project. ``scope``: limits of its replay; ``detail``: the replay's results."""

    id: int
    project_id: int
    state: GenerationState
    recipe: Recipe
    created_at: datetime
    switched_at: datetime | None = None
    scope: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Create from a row of the table."""
        return cls(
            id=row["id"],
            project_id=row["project_id"],
            state=row["state"],
            recipe=Recipe(row["model"], json.loads(row["models"]), row["chunking"], row["tokens"]),
            created_at=row["created_at"],
            switched_at=row["switched_at"],
            scope=json.loads(row["scope"]),
            detail=json.loads(row["detail"] or "{}"),
        )


async def live(connection: asyncpg.Connection, project_id: int) -> Generation:
    """The live generation, which answers queries. The connection must be in the project's scope.

    Raises:
        ProjectGone: the project is deleted.
    """
    row = await connection.fetchrow(_QUERIES["live_generation"], project_id)
    return Generation.of_row(_existing(row))


async def enter_live(connection: asyncpg.Connection, project_id: int) -> Generation:
    """Enter the scope of the live generation, for the rest of the transaction, and return it.

    Raises:
        ProjectGone: the project is deleted.
    """
    row = await connection.fetchrow(_QUERIES["enter_live_generation"], project_id)
    return Generation.of_row(_existing(row))


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
    )
    return Generation.of_row(row)


async def note(
    connection: asyncpg.Connection, generation: Generation, detail: Mapping[str, Any]
) -> None:
    """Store the findings of a replay about a generation."""
    await connection.execute(
        _QUERIES["note_generation"], generation.project_id, generation.id, json.dumps(dict(detail))
    )


async def mark_dropping(connection: asyncpg.Connection, generation: Generation) -> bool:
    """Mark a generation ``dropping``; false if it is live."""
    status = await connection.execute(
        _QUERIES["mark_dropping"], generation.project_id, generation.id
    )
    return str(status) != "UPDATE 0"


async def remove(connection: asyncpg.Connection, generation: Generation) -> None:
    """Remove the record of a ``dropping`` generation that has no rows any more."""
    await connection.execute(_QUERIES["remove_generation"], generation.project_id, generation.id)
