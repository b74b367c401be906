"""Generations made and switched by SQL, as a replay would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from store.generations.catalog import Recipe
from store.postgres.locks import Lock
from tests.support.databases import Database

__all__ = ["Switchboard", "switchboard"]


class Switchboard:
    """Generations of one project, with the rights of the tables' owner."""

    def __init__(self, connection: asyncpg.Connection, project_id: int) -> None:
        self._connection = connection
        self._project_id = project_id

    async def switch(self, recipe: Recipe) -> int:
        """Replace the live generation by an empty one; returns its id."""
        async with self._connection.transaction():
            await self._connection.execute(
                "select pg_advisory_xact_lock($1, $2)", Lock.SWITCH, self._project_id
            )
            await self._connection.execute(
                "update generations set state = 'former' where project_id = $1 and state = 'live'",
                self._project_id,
            )
            generation_id: int = await self._connection.fetchval(
                "insert into generations (project_id, state, model, models, chunking, tokens)"
                " values ($1, 'live', $2, $3, $4, $5) returning id",
                self._project_id,
                recipe.model,
                json.dumps(dict(recipe.models)),
                recipe.chunking,
                recipe.tokens,
            )
        return generation_id

    async def rename(self, generation_id: int, recipe: Recipe) -> None:
        """Change the models that a generation records, and nothing else."""
        await self._connection.execute(
            "update generations set model = $2, models = $3 where id = $1",
            generation_id,
            recipe.model,
            json.dumps(dict(recipe.models)),
        )

    async def empty(self, generation_id: int) -> None:
        """Delete the chunks of a generation, as a drop does."""
        await self._enter(generation_id)
        await self._connection.execute("delete from chunks where generation_id = $1", generation_id)

    async def chunks(self, generation_id: int) -> list[tuple[str, str, int]]:
        """Uri, model and tokens of each embedded chunk."""
        await self._enter(generation_id)
        rows = await self._connection.fetch(
            "select d.uri, m.name, c.tokens from chunks c"
            " join documents d on d.generation_id = c.generation_id and d.id = c.document_id"
            " join embeddings e on e.generation_id = c.generation_id and e.chunk_id = c.id"
            " join models m on m.id = e.model_id"
            " where c.generation_id = $1 order by d.uri, c.ordinal",
            generation_id,
        )
        return [tuple(row) for row in rows]

    async def _enter(self, generation_id: int) -> None:
        await self._connection.execute(
            "select set_config('app.generation_id', $1, false)", str(generation_id)
        )


@asynccontextmanager
async def switchboard(database: Database, project: str) -> AsyncIterator[Switchboard]:
    """Switchboard of an existing project."""
    connection = await asyncpg.connect(database.owner_url)
    try:
        project_id = await connection.fetchval("select id from projects where name = $1", project)
        await connection.execute(
            "select set_config('app.project_id', $1, false), set_config('app.agent', '*', false)",
            str(project_id),
        )
        yield Switchboard(connection, project_id)
    finally:
        await connection.close()
