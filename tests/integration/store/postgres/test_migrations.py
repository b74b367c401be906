"""Index of an earlier version after a migration, with either kind of table owner."""

from __future__ import annotations

from itertools import count

import asyncpg
import numpy as np
import pytest

from events.models import Filters
from runtime.embedded import EmbeddedPostgres
from runtime.errors import ConfigurationError
from store.generations.catalog import Recipe
from store.postgres.pool import EVERY_AGENT, Database
from store.postgres.schema import upgrade
from store.search.search import Search
from store.search.vector_indexes import VectorIndexes
from store.store import Store
from store.types import SearchRequest
from tests.support.databases import create_database
from tests.support.migrating import Leftover, fill_0002, migrate_to, plain_owner_url
from tests.support.writes import MODEL, RECIPE, contents_of, document_write, opened, vector_of

PROJECTS = ("alpha", "beta", "empty")
DOCUMENTS: tuple[Leftover, ...] = (
    (1, "", "a.md", "markdown", "the mill race is dry"),
    (1, "", "b.md", "markdown", "the miller sleeps"),
    (1, "", "c.py", "code", "def mill(): pass"),
    (1, "ann", "a.md", "markdown", "ann's mill"),
    (2, "", "a.md", "markdown", "another mill race"),
)

_numbers = count(1)


@pytest.fixture(params=["superuser", "plain owner"])
async def urls(
    request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres
) -> tuple[str, str]:
    """URLs of owner and worker of a database that version 0.2 filled and this version migrated."""
    name = f"left_by_0002_{next(_numbers)}"
    of_server = postgres_server.urls(name)
    if request.param == "superuser":
        await create_database(postgres_server, name)
        owner = of_server.owner
    else:
        owner = await plain_owner_url(postgres_server, name)
    await migrate_to(owner, "0002")
    await fill_0002(of_server.owner, PROJECTS, DOCUMENTS)
    await upgrade(owner)
    return owner, of_server.worker


async def test_an_index_of_0002_stays_in_use(urls: tuple[str, str]) -> None:
    """A migrated index is read, searched and written as the live generation."""
    async with opened(urls[1]) as worker:
        store, search = Store(worker, RECIPE), Search(worker)
        alpha, beta = await search.live("alpha"), await search.live("beta")
        assert await contents_of(worker, alpha, "ann") == {
            (agent, uri): [text] for project, agent, uri, _, text in DOCUMENTS if project == 1
        }
        assert await contents_of(worker, beta) == {("", "a.md"): ["another mill race"]}
        vectors = {MODEL: vector_of("the mill race is dry").astype(np.float32)}
        request = SearchRequest("alpha", None, "mill", vectors, Filters(), 2)
        found = await search.candidates(alpha, request)
        rows = await search.rows(alpha, None, [found.vector[MODEL][0][0]])
        assert [row.content for row in rows.values()] == ["the mill race is dry"]
        assert found.vector[MODEL][0][1] == pytest.approx(1, abs=2e-3)
        assert len(found.keyword) == 2
        (late,) = await store.apply([document_write("a.md", 5, ["late"])])
        assert late.outcome == "superseded"
        await store.apply([document_write("a.md", 50, ["the mill race flows"])])
        assert (await contents_of(worker, alpha))["", "a.md"] == ["the mill race flows"]
        (repeated,) = await store.apply([document_write("b.md", 11, ["the miller sleeps"])])
        assert repeated.outcome == "duplicate"


async def test_a_migrated_index_has_the_recipe_that_it_was_made_by(urls: tuple[str, str]) -> None:
    """The recipe of a migrated index has the model of most vectors, and other models by kind."""
    async with opened(urls[1]) as worker:
        store = Store(worker, RECIPE)
        alpha, beta, empty = [await store.live(project) for project in PROJECTS]
        assert alpha is not None
        assert alpha.recipe == Recipe("test/model", {"code": "test/code"}, chunking="1")
        assert beta is not None
        assert beta.recipe == Recipe("test/model", chunking="1")
        assert empty is not None
        assert empty.state == "live"
        created = await store.generation("new")
        assert created.id not in {alpha.id, beta.id, empty.id}
        await store.apply([document_write("a", 10, ["one"], project="new")])
        assert await contents_of(worker, created) == {("", "a"): ["one"]}


async def test_vectors_stay_where_they_are(urls: tuple[str, str]) -> None:
    """Vectors of older generations keep their table and its index; those of new ones are beside."""
    owner = await asyncpg.connect(urls[0])

    async def tables(project: str) -> set[str]:
        async with opened(urls[1]) as worker:
            live = await Store(worker, RECIPE).generation(project)
            async with worker.scope(live.project_id, EVERY_AGENT, live.id) as connection:
                rows = await connection.fetch("select tableoid::regclass::text from embeddings")
            assert await owner.fetchval("select vectors_table($1)::text", live.id) in {
                row["tableoid"] for row in rows
            }
            return {row["tableoid"] for row in rows}

    async with opened(urls[1]) as worker:
        store = Store(worker, RECIPE)
        await store.apply([document_write("a", 10, ["one"], project="new")])
        assert await tables("alpha") == {"embeddings_before"}
        [table] = await tables("new")
        assert table not in {"embeddings_before", "embeddings_hashed"}
        for project in ("alpha", "new"):
            live = await store.generation(project)
            indexes = VectorIndexes(worker, None, exact_chunks=0)
            assert (await indexes.refresh(live.project_id, live.id)).built >= 1
        names = await owner.fetch(
            "select indrelid::regclass::text as name from pg_index "
            "where indexrelid::regclass::text like 'embeddings\\_hnsw\\_%'"
        )
        assert {row["name"] for row in names} >= {"embeddings_before", table}
        before = len(await _vectors(worker, store, "alpha"))
        await store.apply([document_write("b.md", 60, [], change="delete")])
        assert len(await _vectors(worker, store, "alpha")) == before - 1
    await owner.close()


async def _vectors(worker: Database, store: Store, project: str) -> list[asyncpg.Record]:
    live = await store.generation(project)
    async with worker.scope(live.project_id, EVERY_AGENT, live.id) as connection:
        return list(await connection.fetch("select from embeddings"))


async def test_roles_that_the_owner_may_not_make(postgres_server: EmbeddedPostgres) -> None:
    """The error gives the step that a superuser must do first."""
    owner = await plain_owner_url(postgres_server, "without_roles")
    superuser = await asyncpg.connect(postgres_server.urls("without_roles").owner)
    await superuser.execute("revoke headrace_worker from headrace_operator")
    try:
        with pytest.raises(ConfigurationError, match="as a superuser, create role"):
            await upgrade(owner)
    finally:
        await superuser.execute("grant headrace_worker to headrace_operator")
        await superuser.close()
