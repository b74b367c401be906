"""Questions whose vector does not match the stored ones, and the number of searched chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt
import pytest

from events.models import Filters
from runtime.errors import ConfigurationError
from store.documents.pending import Counts, PendingVectors
from store.generations.catalog import Projects
from store.search import vector_retriever
from store.search.search import Search
from store.search.vector_retriever import Coverage
from store.store import Store
from store.types import Candidates, SearchRequest
from tests.support.databases import Database
from tests.support.waiting import eventually
from tests.support.writes import MODEL, RECIPE, chunk_write, document_write, opened, vector_of

Vectors = Mapping[str, npt.NDArray[np.float32]]
TEXT = "the mill race is dry"


@pytest.fixture
async def search(database: Database) -> AsyncIterator[Search]:
    """Search with one document, embedded by ``MODEL``."""
    async with opened(database.operator_url) as worker:
        await Store(worker, RECIPE).apply([document_write("a.md", 2, [TEXT])])
        yield Search(worker)


async def _ask(search: Search, vectors: Vectors, text: str | None = TEXT) -> Candidates:
    request = SearchRequest("alpha", None, text, vectors, Filters(), 10)
    return await search.candidates(await search.live("alpha"), request)


def _vector(dimensions: int = 8) -> npt.NDArray[np.float32]:
    return vector_of(TEXT, dimensions).astype(np.float32)


async def test_the_model_of_the_project_is_no_trouble(search: Search) -> None:
    """A question with a vector of the project's model is not degraded."""
    assert (await _ask(search, {MODEL: _vector()})).degraded == ()


@pytest.mark.parametrize("vectors", [{"other/model": _vector()}, {MODEL: _vector(16)}])
async def test_another_model_or_width_degrades_a_hybrid_question(
    search: Search, vectors: Vectors
) -> None:
    """A vector of another model or width degrades a hybrid question to keywords."""
    found = await _ask(search, vectors)
    assert found.degraded == ("vector",)
    assert len(found.keyword) == 1


async def test_a_vector_question_by_another_model_is_refused(search: Search) -> None:
    """A vector question by another model is refused with both models named."""
    with pytest.raises(ConfigurationError, match=r"test/model.*other/model.*headrace replay"):
        await _ask(search, {"other/model": _vector()}, text=None)


async def test_a_model_that_is_passed_by_is_named(search: Search, database: Database) -> None:
    """A model of other documents that the question does not cover is named as degraded."""
    async with opened(database.operator_url) as worker:
        chunk = chunk_write(0, "newly embedded", model="new/model")
        await Store(worker, RECIPE).apply([document_write("b.md", 4, chunks=(chunk,))])
    found = await _ask(search, {"new/model": _vector()})
    assert found.degraded == (f"vector:{MODEL}",)
    assert len(found.vector["new/model"]) == 1


async def test_the_first_vectors_are_found_at_once(database: Database) -> None:
    """The first vectors are found by the next question."""
    async with opened(database.operator_url) as worker:
        write = document_write("a.md", 2, chunks=(chunk_write(0, TEXT, vector=None),))
        await Store(worker, RECIPE).apply([write])
        search = Search(worker)
        before = await _ask(search, {MODEL: _vector()})
        assert (before.vector[MODEL], before.coverage) == ([], 0.0)
        pending = PendingVectors(worker, Projects(worker))
        assert await pending.counts("alpha") == Counts(chunks=1, pending=1, refused=0)
        generation = await search.live("alpha")
        waiting = await pending.texts("alpha", generation.id, [write.log_position], 10)
        vectors = {text.content_hash: vector_of(TEXT) for text in waiting}
        await pending.remember("alpha", MODEL, vectors)
        await pending.complete("alpha", generation.id, waiting, {})
        after = await _ask(search, {MODEL: _vector()})
        assert (len(after.vector[MODEL]), after.coverage) == (1, 1.0)
        assert await pending.counts("alpha") == Counts(chunks=1, pending=0, refused=0)
        assert await pending.counts("unknown") == Counts(chunks=0, pending=0, refused=0)


async def test_a_search_does_not_wait_for_another_count(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a count runs, the answer has the former number; a later answer has the new one."""
    monkeypatch.setattr(vector_retriever, "_ALL_SECONDS", -1.0)
    may_count = asyncio.Event()
    count = Coverage._count

    async def count_later(self: Coverage, *arguments: Any) -> int:
        await may_count.wait()
        return await count(self, *arguments)

    async with opened(database.operator_url) as worker:
        store, search = Store(worker, RECIPE), Search(worker)
        await store.apply([document_write("a.md", 2, [TEXT])])
        assert (await _ask(search, {})).searched_chunks == 1
        await store.apply([document_write("b.md", 4, [TEXT, TEXT])])
        monkeypatch.setattr(Coverage, "_count", count_later)
        assert (await _ask(search, {})).searched_chunks == 1
        may_count.set()

        async def counts_all() -> bool:
            return (await _ask(search, {})).searched_chunks == 3

        await eventually(counts_all, "three chunks are counted")


async def test_documents_without_their_number_of_chunks_are_counted(database: Database) -> None:
    """A version that older code wrote has the number of an earlier version, or none."""
    owner = await asyncpg.connect(database.owner_url)
    async with opened(database.operator_url) as worker:
        store = Store(worker, RECIPE)
        for position, (uri, count) in enumerate((("a", 3), ("b", 2), ("c", 1)), start=1):
            texts = [f"{TEXT} {number}" for number in range(count)]
            await store.apply([document_write(uri, position, texts)])
        await owner.execute("update documents set text_chunks = null, counted_position = null")
        assert (await _ask(Search(worker), {})).searched_chunks == 6
        await store.apply([document_write("a", 4, [TEXT])])
        await owner.execute("update documents set text_chunks = 9, counted_position = position - 1")
        assert (await _ask(Search(worker), {})).searched_chunks == 4
        await owner.execute("update documents set text_chunks = 7, counted_position = position")
        assert (await _ask(Search(worker), {})).searched_chunks == 21
    await owner.close()
