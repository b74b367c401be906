"""Concurrent builds of vector indexes: they take turns; otherwise Postgres ends one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from math import inf

import pytest

from store.postgres.locks import Lock
from store.postgres.pool import Database
from store.search import vector_indexes
from store.search.index_builders import Build
from store.search.vector_indexes import ANY_GENERATION, VectorIndexes
from tests.support.databases import Database as Fresh
from tests.support.searching import MODEL, Index, unit_vectors
from tests.support.writes import chunk_write, document_write

CHUNKS = 1_200
DIMENSIONS = 32
PROJECTS = ("p", "q", "r")


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    """Three projects that are large enough for an index."""
    opened = await Database.open(database.operator_url)
    index = Index.of(opened)
    vectors = unit_vectors(1, CHUNKS, DIMENSIONS)
    texts = [f"chunk {number}" for number in range(CHUNKS)]
    for project in PROJECTS:
        await index.store.apply([index.document("d", texts, vectors, project=project)])
    yield index
    await opened.close()


def refreshing(index: Index, database: Fresh, *projects: str) -> list[asyncio.Task[int]]:
    """Start a waiting build for each project."""

    async def refresh(project: str) -> int:
        live = await index.live(project)
        indexes = VectorIndexes(index.database, database.owner_url, exact_chunks=400)
        return (await indexes.refresh(live.project_id, live.id, wait=True)).built

    return [asyncio.create_task(refresh(project)) for project in projects]


async def test_builds_at_once_take_turns(index: Index, database: Fresh) -> None:
    """Concurrent builds all succeed."""
    assert await asyncio.gather(*refreshing(index, database, *PROJECTS)) == [1, 1, 1]


async def test_an_index_that_another_process_has_built_is_not_built_again(
    index: Index, database: Fresh
) -> None:
    """It may end its build after another one has found it due, and before that has the lock."""

    class Late(VectorIndexes):
        async def _due(
            self, project_id: int, generation_id: int, after_import: bool
        ) -> tuple[list[Build], int]:
            due = await super()._due(project_id, generation_id, after_import)
            assert await first.refresh(project_id, generation_id) == (1, 0)
            return due

    first = VectorIndexes(index.database, database.owner_url, exact_chunks=400)
    second = Late(index.database, database.owner_url, exact_chunks=400)
    live = await index.live("p")
    assert await second.refresh(live.project_id, live.id) == (0, 0)


async def test_a_build_waits_for_imports_of_other_projects(
    index: Index, database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build waits for the imports of other projects, up to a limit."""
    monkeypatch.setattr(vector_indexes, "IMPORT_VECTORS_PER_S", inf)  # ignore its own import
    live = await index.live("p")
    indexes = VectorIndexes(index.database, database.owner_url, exact_chunks=400)

    async def refresh() -> tuple[int, int]:
        return await indexes.refresh(live.project_id, live.id, after_import=True)

    without_vector = chunk_write(0, "Herons nest in March.", model=MODEL, vector=None)
    importing = document_write("importing.md", 100_000, project="q", chunks=(without_vector,))
    await index.store.apply([importing])
    assert await refresh() == (0, 1)

    await index.store.apply([replace(importing, position=100_001, change="delete", chunks=())])
    assert await refresh() == (0, 1), "the next import may follow at once"
    monkeypatch.setattr(vector_indexes, "CALM_S", 0.0)
    assert await refresh() == (1, 0)

    more = index.document("e", ["more"] * CHUNKS, unit_vectors(2, CHUNKS, DIMENSIONS), project="p")
    await index.store.apply([more])
    await index.store.apply([replace(importing, event_id="again", position=100_002)])
    assert await refresh() == (0, 1)
    monkeypatch.setattr(vector_indexes, "MAX_DEFERRAL_S", 0.0)
    assert await refresh() == (1, 0)


async def test_upkeep_leaves_a_build_for_later(index: Index, database: Fresh) -> None:
    """A build without ``wait`` leaves its index for later while another one runs."""
    live = await index.live("q")
    indexes = VectorIndexes(index.database, database.owner_url, exact_chunks=400)
    async with (
        index.database.connection() as connection,
        Lock.VECTOR_INDEX.holding(connection, ANY_GENERATION),
    ):
        assert await indexes.refresh(live.project_id, live.id) == (0, 1)
    assert await indexes.refresh(live.project_id, live.id) == (1, 0)
