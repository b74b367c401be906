"""Partitions of the vectors: an index of one generation costs those of other partitions nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import numpy as np
import pytest

from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.vector_indexes import VectorIndexes
from tests.support.databases import Database as Fresh
from tests.support.searching import Index, unit_vectors

DIMENSIONS = 8
CHUNKS = 30


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    """Index without projects."""
    opened = await Database.open(database.operator_url)
    yield Index.of(opened)
    await opened.close()


async def _with_vectors(index: Index, project: str, chunks: int = CHUNKS) -> Generation:
    texts = [f"chunk {number}" for number in range(chunks)]
    vectors = unit_vectors(1, chunks, DIMENSIONS)
    await index.store.apply([index.document("d", texts, vectors, project=project)])
    return await index.live(project)


async def _table(owner: asyncpg.Connection, generation_id: int) -> str:
    return str(await owner.fetchval("select vectors_table($1)::text", generation_id))


async def _on_one_table(index: Index, database: Fresh, *sizes: int) -> list[Generation]:
    """Generations of new projects whose vectors are in one partition."""
    owner = await asyncpg.connect(database.owner_url)
    generations: list[Generation] = []
    generation_id = 0
    for size in sizes:
        generation_id += 1
        while generations and await _table(owner, generation_id) != await _table(
            owner, generations[0].id
        ):
            generation_id += 1
        await owner.execute("select setval('generations_id_seq', $1, false)", generation_id)
        generations.append(await _with_vectors(index, f"of-{size}", size))
        assert generations[-1].id == generation_id
    await owner.close()
    return generations


async def test_a_search_locks_the_indexes_of_its_partition_only(
    index: Index, database: Fresh
) -> None:
    """A search, also one repeated until its plan is cached, opens no other partition."""
    near, far = [await _with_vectors(index, name) for name in ("p", "q")]
    indexes = VectorIndexes(index.database, database.owner_url, exact_chunks=10)
    for generation in (near, far):
        assert (await indexes.refresh(generation.project_id, generation.id, wait=True)).built == 1
    values = {
        "generation_id": near.id,
        "model_id": 1,
        "dimensions": DIMENSIONS,
        "limit": 3,
        "watermark": 10_000,
        "is_example": "false",
        "visible": "",
    }
    vector = np.ones(DIMENSIONS, np.float16)
    async with index.database.scope(near.project_id, EVERY_AGENT, near.id) as connection:
        for _ in range(8):
            await connection.fetch(named("vectors")["indexed"].format(**values), vector)
            await connection.fetch(named("vectors")["compared"].format(**values), vector, [1])
            await connection.fetch(named("vectors")["stored"].format(**values), [1])
            await connection.fetch(named("search")["embedded_by"].format(**values))
        locked = await connection.fetch(
            "select distinct relation::regclass::text as name from pg_locks "
            "where pid = pg_backend_pid() and relation::regclass::text like 'embeddings\\_%'"
        )
    names = {row["name"] for row in locked}
    assert any(name.startswith(f"embeddings_hnsw_{near.id}_") for name in names)
    owner = await asyncpg.connect(database.owner_url)
    table = await _table(owner, near.id)
    assert table != await _table(owner, far.id)
    await owner.close()
    of_all = ("embeddings_hashed", "embeddings_pkey", "embeddings_examples")
    expected = (*of_all, table, f"embeddings_hnsw_{near.id}_")
    assert [name for name in names if not name.startswith(expected)] == []


async def test_the_smallest_projects_of_a_full_partition_are_compared_one_by_one(
    index: Index, database: Fresh
) -> None:
    """Above the ceiling a smaller project gets no index, and a larger one takes its place."""
    small, large, smallest = await _on_one_table(index, database, 30, 60, 20)
    indexes = VectorIndexes(index.database, database.owner_url, exact_chunks=10, most_indexes=1)

    async def refreshed(generation: Generation) -> tuple[int, int]:
        return await indexes.refresh(generation.project_id, generation.id, wait=True)

    async def indexed() -> set[int]:
        owner = await asyncpg.connect(database.owner_url)
        names = await owner.fetch(
            "select split_part(relname, '_', 3)::int as id from pg_class "
            "where relname like 'embeddings\\_hnsw\\_%'"
        )
        recorded = await owner.fetch("select generation_id as id from vector_indexes")
        await owner.close()
        assert {row["id"] for row in names} == {row["id"] for row in recorded}
        return {row["id"] for row in names}

    assert await refreshed(small) == (1, 0)
    assert await refreshed(smallest) == (0, 0)
    assert await refreshed(large) == (1, 0)
    assert await indexed() == {small.id, large.id}
    assert await refreshed(small) == (0, 0)
    assert await indexed() == {large.id}
    assert await refreshed(large) == (0, 0)
    assert await indexed() == {large.id}


async def test_a_worker_builds_without_blocking_other_partitions(
    index: Index, database: Fresh
) -> None:
    """A build through the function of the owner locks the table of its generation only."""
    near, far = [await _with_vectors(index, name) for name in ("p", "q")]
    owner = await asyncpg.connect(database.owner_url)
    async with owner.transaction():
        await owner.execute(f"lock table {await _table(owner, far.id)} in row exclusive mode")
        indexes = VectorIndexes(index.database, None, exact_chunks=10)
        assert (await indexes.refresh(near.project_id, near.id, wait=True)).built == 1
    await owner.close()
