"""Bulk build of a generation, compared with one that was written change by change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from events.names import LogPosition
from store.documents import chunks, pending
from store.documents.bulk import BulkWriter, DocumentsInTheWay
from store.documents.digests import (
    TOMBSTONE,
    StoredDigest,
    document_digest,
    index_digest,
    stored_documents,
)
from store.documents.pending import PendingVectors
from store.generations.catalog import Generation, Projects
from store.postgres.pool import EVERY_AGENT, Database
from store.search.keyword.postings import Postings, decode_chunks, decode_inline
from store.search.keyword.rows import from_rows
from store.store import Store
from store.types import DocumentWrite
from tests.support.databases import Database as Fresh
from tests.support.writes import (
    MODEL,
    add_generation,
    chunk_write,
    contents_of,
    document_write,
)

HISTORY = [
    document_write("a.md", 10, ["one", "two", "three"], title="A", collections=("b", "a")),
    document_write("a.md", 11, ["zero", "one", "three"], title="A", collections=("b",)),
    document_write("b.md", 12, ["one"], metadata={"n": 1.0, "big": 1e22, "tag": "ä", "on": True}),
    document_write("b.md", 13, ["one", "4"], metadata={"n": 1.5, "big": 1e22, "on": False}),
    document_write("c.md", 14, ["gone"], kind="markdown"),
    document_write("c.md", 15, change="delete"),
    document_write("a.md", 16, ["mine", "one"], agent="bob", collections=("a",)),
    document_write(
        "d.py",
        17,
        chunks=(
            chunk_write(0, "def f(): pass", symbol="f", page=3, heading_path=("A", "x, \"y'}{")),
            chunk_write(1, "say \\ \t\u2028 twice", end_line=4),
            chunk_write(2, "say \\ \t\u2028 twice"),
        ),
    ),
    document_write("empty.md", 18),
]
"""Changes of a live index, some of them edits."""


def last_of_each(history: Sequence[DocumentWrite]) -> list[DocumentWrite]:
    """Last write of each document, with its vectors in the cache, as a replay makes it."""
    latest = {(write.agent, write.uri): write for write in history}
    return [
        replace(write, chunks=tuple(chunk._replace(vector=None) for chunk in write.chunks))
        for write in latest.values()
    ]


async def digests(worker: Database, generation: Generation) -> list[StoredDigest]:
    scope = generation.project_id, EVERY_AGENT, generation.id
    async with worker.scope(*scope) as connection:
        return [one async for one in stored_documents(connection, generation.id)]


async def test_a_bulk_build_equals_what_was_written_change_by_change(
    store: Store, worker: Database
) -> None:
    """A bulk build gives the same documents, chunks, collections, vectors, words and digests."""
    for write in HISTORY:
        await store.apply([write])
    live = await store.generation("alpha")
    building = await add_generation(worker, store, "alpha")
    written = await BulkWriter(worker, live.project_id, building).write(last_of_each(HISTORY))

    before, after = await digests(worker, live), await digests(worker, building)
    assert written == sum(one.chunks for one in after) == 10
    assert [replace(one, digest=b"") for one in after] == [
        replace(one, digest=b"") for one in before
    ]
    assert all(one.recorded == one.digest and one.vectors == one.chunks for one in before + after)
    assert index_digest(before) == index_digest(after)
    assert await contents_of(worker, building) == await contents_of(worker, live)
    assert await members(worker, building) == await members(worker, live)
    assert await words(worker, building) == await words(worker, live)


async def members(worker: Database, generation: Generation) -> list[Any]:
    return await rows(
        worker,
        generation,
        "select d.agent, d.uri, c.name, m.agent from document_collections m "
        "join documents d on d.id = m.document_id join collections c on c.id = m.collection_id "
        "order by 1, 2, 3",
    )


async def words(worker: Database, generation: Generation) -> dict[tuple[str, str, int], Any]:
    """Number of terms, and count by term, of each existing chunk."""
    places = {
        row["id"]: (row["agent"], row["uri"], row["ordinal"])
        for row in await rows(
            worker,
            generation,
            "select c.id, d.agent, d.uri, c.ordinal from chunks c "
            "join documents d on d.id = c.document_id",
        )
    }
    found: dict[tuple[str, str, int], Any] = {}
    for row in await rows(worker, generation, "select * from keyword_segments"):
        postings = await read_postings(worker, generation, row)
        for place, chunk_id in enumerate(postings.chunk_ids.tolist()):
            if chunk_id in places:
                found[places[chunk_id]] = int(postings.lengths[place]), terms_at(postings, place)
    return found


async def read_postings(worker: Database, generation: Generation, row: Any) -> Postings:
    if row["postings"] is not None:
        return decode_inline(row["documents"], row["postings"])
    written = [
        (posting["term"], posting["postings"])
        for posting in await rows(worker, generation, "select * from keyword_postings")
        if posting["segment_id"] == row["segment_id"]
    ]
    return from_rows(*decode_chunks(row["documents"]), written)


def terms_at(postings: Postings, place: int) -> dict[int, int]:
    return {
        term: int(hits[1][hits[0] == place][0])
        for term in postings.terms.tolist()
        if (hits := postings.find(term)) and place in hits[0]
    }


async def rows(worker: Database, generation: Generation, sql: str) -> list[Any]:
    scope = generation.project_id, EVERY_AGENT, generation.id
    async with worker.scope(*scope) as connection:
        return list(await connection.fetch(sql))


async def test_a_large_segment_holds_the_words_of_all_its_chunks(
    store: Store, worker: Database
) -> None:
    """A segment too large for inline postings has the words of all its chunks."""
    texts = [f"common word{number} repeated repeated" for number in range(300)]
    write = document_write("long.md", 1, texts)
    await store.apply([write])
    live = await store.generation("alpha")
    building = await add_generation(worker, store, "alpha")
    await BulkWriter(worker, live.project_id, building).write([write])

    assert await words(worker, building) == await words(worker, live)
    assert 60 < len(await rows(worker, building, "select from keyword_postings")) < 150
    assert await rows(worker, building, "select words from keyword_words") == await rows(
        worker, live, "select words from keyword_words"
    )


async def test_given_vectors_are_remembered(store: Store, worker: Database) -> None:
    """Vectors that are written in bulk are added to the cache."""
    building = await add_generation(worker, store, "alpha")
    write = document_write("a.md", 1, ["one", "two", "one"])
    await BulkWriter(worker, building.project_id, building).write([write])

    hashes = [chunk.content_hash for chunk in write.chunks]
    async with worker.scope(building.project_id) as connection:
        known = await chunks.known_hashes(
            connection, building.project_id, MODEL, [*hashes, bytes(32)]
        )
    assert known == set(hashes)
    (stored,) = await digests(worker, building)
    assert stored.vectors == 3


async def test_a_chunk_without_a_cached_vector_waits(store: Store, worker: Database) -> None:
    """A chunk without a cached vector is pending; a cached vector is used."""
    await store.apply([document_write("a.md", 1, ["one"])])
    building = await add_generation(worker, store, "alpha")
    unknown = chunk_write(1, "never embedded", vector=None)
    writes = last_of_each(
        [document_write("a.md", 1, ["one"]), document_write("b.md", 2, chunks=(unknown,))]
    )
    writer = BulkWriter(worker, building.project_id, building)
    await writer.write(writes)
    other = unknown._replace(model="other/model", header="in c")
    await writer.write([document_write("c.md", 3, chunks=(other,))])
    [a, b, c] = await digests(worker, building)
    assert [(one.chunks, one.vectors) for one in (a, b, c)] == [(1, 1), (1, 0), (1, 0)]
    waiting = await PendingVectors(worker, Projects(worker)).texts("alpha", building.id, None, 10)
    assert [(text.model, text.text) for text in waiting] == [
        (MODEL, "never embedded"),
        ("other/model", "in c\nnever embedded"),
    ]


async def test_a_page_of_waiting_texts_costs_the_same_however_many_wait(
    store: Store, worker: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres reads a page of rows, not all, although it has no statistics of what was added."""
    building = await add_generation(worker, store, "alpha")
    lacking = [
        document_write(f"{n}.md", n, chunks=(chunk_write(0, f"text {n}", vector=None),))
        for n in range(1, 201)
    ]
    await BulkWriter(worker, building.project_id, building).write(lacking)
    waiting = PendingVectors(worker, Projects(worker))
    texts = await waiting.texts("alpha", building.id, None, 3)
    assert [text.text for text in texts] == ["text 1", "text 2", "text 3"]
    explained = f"explain (analyze, format json) {pending._QUERIES['pending_texts']}"
    monkeypatch.setattr(pending, "_QUERIES", {**pending._QUERIES, "pending_texts": explained})
    monkeypatch.setattr(pending, "_pending_text", tuple)
    plans: Any = await waiting.texts("alpha", building.id, None, 3)
    [[plan]] = plans
    read = list(map(int, re.findall(r'"Actual Rows": (\d+)', plan)))
    assert 3 <= max(read) < 10, plan


async def test_texts_of_a_change_are_found_beside_statistics_of_another_generation(
    store: Store, worker: Database, database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them, Postgres expects no row of a new generation, and may choose any of its indexes."""
    await store.apply([document_write("a.md", 1, [f"other {n}" for n in range(300)])])
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("analyze")
    await owner.close()
    building = await add_generation(worker, store, "alpha")
    lacking = [
        document_write(f"{n}.md", n, chunks=(chunk_write(0, f"text {n}", vector=None),))
        for n in range(1, 201)
    ]
    await BulkWriter(worker, building.project_id, building).write(lacking)
    waiting = PendingVectors(worker, Projects(worker))
    explained = f"explain (analyze, format json) {pending._QUERIES['pending_texts']}"
    monkeypatch.setattr(pending, "_QUERIES", {**pending._QUERIES, "pending_texts": explained})
    monkeypatch.setattr(pending, "_pending_text", tuple)
    positions = [LogPosition(n, 0) for n in range(1, 65)]
    plans: Any = await waiting.texts("alpha", building.id, positions, 512)
    [[plan]] = plans
    [lookup] = re.findall(r'\{[^{}]*"Relation Name": "chunks"[^{}]*\}', plan)
    assert json.loads(lookup)["Actual Loops"] == 64
    assert json.loads(lookup).get("Rows Removed by Filter", 0) < 2, plan


async def test_a_document_that_is_stored_is_in_the_way(store: Store, worker: Database) -> None:
    """A document that is already stored, even an older or deleted one, stops the whole write."""
    building = await add_generation(worker, store, "alpha")
    writer = BulkWriter(worker, building.project_id, building)
    await writer.write([document_write("a.md", 1, ["one"]), document_write("b.md", 2)])
    before = await digests(worker, building)
    for write in (document_write("a.md", 1, ["two"]), document_write("b.md", 5, ["two"])):
        with pytest.raises(DocumentsInTheWay, match=write.uri):
            await writer.write([document_write("new.md", 9, ["new"]), write])
    assert await digests(worker, building) == before


async def test_the_live_generation_sees_nothing_of_a_build(store: Store, worker: Database) -> None:
    """A build does not change the live generation."""
    await store.apply([document_write("a.md", 1, ["one"])])
    live = await store.generation("alpha")
    before = await digests(worker, live)
    building = await add_generation(worker, store, "alpha")
    await BulkWriter(worker, building.project_id, building).write(
        [document_write("a.md", 2, ["other"])]
    )
    assert await digests(worker, live) == before


@pytest.mark.parametrize(
    "drift",
    [
        "update chunks set content = content || '.' where ordinal = 1",
        "update chunks set end_line = end_line + 1 where ordinal = 1",
        "update chunks set symbol = '' where ordinal = 1",
        "delete from chunks where ordinal = 1",
        "update documents set title = 'B'",
        "update documents set metadata = '{\"n\": 2}'",
        "delete from document_collections",
        "update documents set deleted = true",
    ],
)
async def test_a_changed_row_shows_in_the_digest(
    store: Store, worker: Database, drift: str
) -> None:
    """A changed row gives a digest that differs from the recorded one."""
    write = document_write("a.md", 1, ["one", "two"], title="A", collections=("docs",))
    await store.apply([write])
    live = await store.generation("alpha")
    (whole,) = await digests(worker, live)
    assert whole.recorded == whole.digest == document_digest(write)
    await rows(worker, live, drift)
    (changed,) = await digests(worker, live)
    assert changed.recorded == document_digest(write) != changed.digest


async def test_a_lost_vector_and_a_chunk_of_a_deleted_document_show(
    store: Store, worker: Database
) -> None:
    """A missing vector is counted, and a deleted document with chunks has another digest."""
    await store.apply([document_write("a.md", 1, ["one", "two"])])
    live = await store.generation("alpha")
    await rows(worker, live, "delete from embeddings where chunk_id = (select min(id) from chunks)")
    (lost,) = await digests(worker, live)
    assert (lost.chunks, lost.vectors, lost.unvectored) == (2, 1, 0)
    await rows(worker, live, "update documents set deleted = true")
    (deleted,) = await digests(worker, live)
    assert deleted.digest != TOMBSTONE


async def test_chunks_that_move_and_titles_that_stay_keep_the_digest_true(
    store: Store, worker: Database
) -> None:
    """An edit that keeps rows records the right digest."""
    first, second = chunk_write(0, "one"), chunk_write(1, "two")
    await store.apply([document_write("a.md", 1, chunks=(first, second))])
    moved = first._replace(ordinal=1, start_line=5, end_line=6, tokens=9, page=2)
    await store.apply([document_write("a.md", 2, chunks=(second._replace(ordinal=0), moved))])
    live = await store.generation("alpha")
    (stored,) = await digests(worker, live)
    assert stored.recorded == stored.digest


async def test_batches_with_the_same_new_collections_do_not_wait_for_each_other(
    store: Store, worker: Database
) -> None:
    """Concurrent batches with the same new collections do not deadlock."""
    await store.apply([document_write("a.md", 1)])
    building = await add_generation(worker, store, "alpha")
    writer = BulkWriter(worker, building.project_id, building)

    def batch(name: str, shared: str, private: str) -> list[DocumentWrite]:
        return [
            document_write(f"{name}/{number}.md", 2, agent=agent, collections=(collection,))
            for number in range(30)
            for agent, collection in ((None, shared), ("bob", private))
        ]

    for number in range(8):
        first, second = f"first-{number}", f"second-{number}"
        await asyncio.gather(
            writer.write(batch(f"forth-{number}", first, second)),
            writer.write(batch(f"back-{number}", second, first)),
        )
