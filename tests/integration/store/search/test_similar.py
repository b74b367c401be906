"""Chunks that are like another one, on real Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from events.models import Filters, Like
from events.names import overlay_agent
from runtime.errors import NotFound
from store.postgres.pool import Database
from store.types import Candidates, SearchRequest, Subject
from tests.support.databases import Database as Fresh
from tests.support.searching import MODEL, Index, unit_vectors

VECTORS = unit_vectors(11, 6, 16)
HERON = "herons wade slowly along the reedy shore"


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    index = Index.of(opened)
    near = (VECTORS[0] + 0.2 * VECTORS[1]) / 1.02
    await index.write("herons", HERON, "other lines", vectors=VECTORS[:2])
    await index.write("reeds", "the reedy shore of the lake", vectors=VECTORS[2:3])
    await index.write("egrets", "white birds", vectors=near[None])
    await index.write("herons", "private herons", vectors=VECTORS[3:4], agent="ada")
    await index.write("bare", "a shore without vectors")
    await index.write("elsewhere", HERON, vectors=VECTORS[:1], project="q")
    yield index
    await opened.close()


async def like(index: Index, place: Like, agent: str | None = None) -> Subject:
    return await index.search.subject(await index.live(), agent, Filters(), place)


async def similar(index: Index, subject: Subject) -> Candidates:
    """Candidates of both retrievers, as the pipeline asks for them."""
    request = SearchRequest("p", None, "", subject.vectors, Filters(), 10, subject=subject)
    return await index.search.candidates(await index.live(), request)


async def test_a_chunk_is_found_by_its_vector_and_its_rarest_terms(index: Index) -> None:
    """The chunk itself is no result; the terms are those that others have, the rarest first."""
    subject = await like(index, Like(uri="herons", line=1))
    assert list(subject.vectors) == [MODEL]
    assert subject.terms.index("reedi") < subject.terms.index("shore")
    assert "wade" not in subject.terms, "no other chunk has it"
    candidates = await similar(index, subject)
    assert (await index.texts(candidates.vector[MODEL]))[0] == "white birds"
    by_words = await index.texts(candidates.keyword)
    assert by_words[0] == "the reedy shore of the lake"
    assert set(by_words[1:]) == {"a shore without vectors", "other lines"}
    assert HERON not in await index.texts(candidates.vector[MODEL])
    assert "other lines" in await index.texts(candidates.vector[MODEL])
    assert candidates.corrections == {}


async def test_other_documents_only(index: Index) -> None:
    subject = await like(index, Like(uri="herons", line=1, other_documents=True))
    candidates = await similar(index, subject)
    assert "other lines" not in await index.texts(candidates.vector[MODEL])
    assert candidates.searched_chunks == 5, "the number of searched chunks has them"


async def test_places_name_the_nearest_chunk(index: Index) -> None:
    """An agent's own document comes first; a line behind the end names no chunk."""
    first = await like(index, Like(uri="herons"))
    second = await like(index, Like(uri="herons", line=2))
    assert second.chunk_id > first.chunk_id
    assert (await like(index, Like(chunk_id=second.chunk_id))).chunk_id == second.chunk_id
    own = await like(index, Like(uri="herons", line=1), agent="ada")
    assert own.chunk_id not in (first.chunk_id, second.chunk_id)
    assert (await like(index, Like(uri="bare"))).vectors == {}
    with pytest.raises(NotFound, match="no chunk at herons:99"):
        await like(index, Like(uri="herons", line=99))


async def test_a_place_in_an_overlay_is_in_the_version_of_the_overlay(index: Index) -> None:
    """Neither a place nor an id names a chunk that the overlay has replaced or removed."""
    replaced = await like(index, Like(uri="herons", line=1), agent="ada")
    in_overlay = overlay_agent("ada", "0" * 32)
    await index.write("herons", "one", "two", agent=in_overlay)
    removed = index.document("egrets", (), agent=overlay_agent("", "0" * 32))
    await index.store.apply([replace(removed, change="upsert")])
    own = await like(index, Like(uri="herons"), agent=in_overlay)
    assert await index.texts([(own.chunk_id, 0)], agent=in_overlay) == ["one"]
    for place in (Like(chunk_id=replaced.chunk_id), Like(uri="egrets")):
        with pytest.raises(NotFound, match="no chunk at"):
            await like(index, place, agent=in_overlay)
        await like(index, place, agent="ada")


async def test_what_may_not_be_seen_does_not_exist(index: Index) -> None:
    """Neither a private chunk nor one of another project can be named, by id or by place."""
    own = await like(index, Like(uri="herons"), agent="ada")
    other = await index.search.subject(
        await index.live("q"), None, Filters(), Like(uri="elsewhere")
    )
    for place in (
        Like(chunk_id=own.chunk_id),
        Like(chunk_id=other.chunk_id),
        Like(uri="elsewhere"),
    ):
        with pytest.raises(NotFound, match="no chunk at"):
            await like(index, place)
