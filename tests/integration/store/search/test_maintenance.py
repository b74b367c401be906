"""Maintenance of an index, on real Postgres: faster searches with the same results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from math import inf
from time import monotonic
from typing import Any

import asyncpg
import numpy as np
import pytest

from events.models import Filters, Kind
from store.generations.catalog import Generation
from store.inspection.vectors import index_findings
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search import (
    due_projects,
    index_builders,
    maintenance,
    statistics,
    vector_indexes,
)
from store.search.due_projects import (
    DueProject,
    DueProjects,
    Task,
    overdue_projects,
    waiting_projects,
)
from store.search.filters import Visibility
from store.search.keyword.segment_merge import list_sizes
from store.search.maintenance import Maintenance
from store.search.statistics import analyze, analyze_tables
from store.search.vector_indexes import VectorIndexes
from tests.support.databases import Database as Fresh
from tests.support.searching import MODEL, Index, unit_vectors
from tests.support.waiting import eventually, within
from tests.support.writes import chunk_write, document_write

DIMENSIONS = 32


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    yield Index.of(opened)
    await opened.close()


async def sizes(index: Index) -> list[int]:
    live = await index.live()
    async with index.database.scope(live.project_id, None, live.id) as connection:
        return [segment.chunks for segment in await list_sizes(connection, live.id)]


async def write_many(index: Index, documents: int, first: int = 0) -> None:
    for i in range(first, first + documents):
        await index.write(f"d{i}", f"walrus number{i} swims", f"seagull number{i} flies")


async def test_folding_changes_no_answer(index: Index) -> None:
    """Merging small segments changes no ids, scores or corrections."""
    await write_many(index, 70)
    queries = ("walrus number7", "seagull", "walrsu swims")
    before = [await index.candidates(query, limit=100) for query in queries]
    await Maintenance(index.database).run_once()
    after = [await index.candidates(query, limit=100) for query in queries]
    fresh = [await Index.of(index.database).candidates(query, limit=100) for query in queries]
    assert len(await sizes(index)) < 20
    assert sum(await sizes(index)) == 140
    for old, new, cold in zip(before, after, fresh, strict=True):
        assert [i for i, _ in new.keyword] == [i for i, _ in old.keyword]
        assert [s for _, s in new.keyword] == pytest.approx([s for _, s in old.keyword])
        assert cold.keyword == new.keyword
        assert new.corrections == old.corrections
    assert list(after[2].corrections) == ["walrsu"]


async def test_folding_makes_large_segments_of_large_ones(index: Index) -> None:
    """Large segments are merged, and the rows of the old ones removed."""
    for part in range(8):
        texts = [f"walrus part{part} number{i}" for i in range(520)]
        await index.store.apply([index.document(f"d{part}", texts)])
    before = await index.candidates("walrus part3 number17", limit=600)
    await Maintenance(index.database).run_once()
    assert await sizes(index) == [8 * 520]
    after = await index.candidates("walrus part3 number17", limit=600)
    assert [i for i, _ in after.keyword] == [i for i, _ in before.keyword]
    assert [s for _, s in after.keyword] == pytest.approx([s for _, s in before.keyword])
    live = await index.live()
    async with index.database.scope(live.project_id, None, live.id) as connection:
        left = await connection.fetchval("select count(distinct segment_id) from keyword_postings")
    assert left == 1


async def test_folding_keeps_private_documents(index: Index) -> None:
    """Merging keeps the private chunks of all agents."""
    for i in range(20):
        await index.write(f"d{i}", f"walrus {i}", agent="ann")
    await Maintenance(index.database).run_once()
    assert len((await index.candidates("walrus", agent="ann", limit=50)).keyword) == 20
    assert (await index.candidates("walrus", agent="bob", limit=50)).keyword == []


async def test_the_dead_are_swept(index: Index) -> None:
    """A segment with mostly deleted chunks is rewritten, and one without others is removed."""
    await index.store.apply([index.document(f"d{i}", [f"walrus {i}"]) for i in range(10)])
    await index.store.apply([index.document(f"e{i}", [f"seagull {i}"]) for i in range(5)])
    await index.store.apply([index.document(f"d{i}", []) for i in range(6)])
    await index.store.apply([index.document(f"e{i}", []) for i in range(5)])
    await Maintenance(index.database).run_once()
    assert await sizes(index) == [4]
    assert len((await index.candidates("walrus")).keyword) == 4


async def test_questions_during_upkeep_lose_and_double_nothing(index: Index) -> None:
    """Questions during writes and merges find each written chunk exactly once."""
    done: list[int] = []
    finished = asyncio.Event()

    async def write() -> None:
        for i in range(50):
            await write_many(index, 1, first=i)
            done.append(i)
        finished.set()

    async def tidy() -> None:
        maintenance = Maintenance(index.database)
        while not finished.is_set():
            await maintenance.run_once()

    async def ask() -> int:
        asked = 0
        while not finished.is_set():
            at_least = len(done)
            found = [i for i, _ in (await index.candidates("walrus", limit=500)).keyword]
            assert len(found) == len(set(found)), "a chunk appears twice"
            assert len(found) >= at_least, "a chunk is lost"
            asked += 1
        return asked

    await write_many(index, 1, first=1000)
    _, _, *asked = await asyncio.gather(write(), tidy(), ask(), ask())
    assert min(asked) > 5
    assert len((await index.candidates("walrus", limit=500)).keyword) == 51


async def indexes(database: Fresh) -> dict[str, list[str]]:
    """Options of each vector index by its name."""
    owner = await asyncpg.connect(database.owner_url)
    try:
        rows = await owner.fetch(
            "select c.relname, c.reloptions, i.indisvalid from pg_class c join pg_index i "
            "on i.indexrelid = c.oid where c.relname like 'embeddings_hnsw%'"
        )
    finally:
        await owner.close()
    assert all(row["indisvalid"] for row in rows)
    return {row["relname"]: row["reloptions"] for row in rows}


async def index_names(database: Fresh) -> list[str]:
    return list(await indexes(database))


@pytest.mark.parametrize("as_owner", [True, False])
async def test_large_projects_get_an_index(
    index: Index, database: Fresh, as_owner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large project gets a vector index with 95% recall, which includes later writes.

    A larger one is built with more search.
    """
    monkeypatch.setattr(vector_indexes, "IMPORT_VECTORS_PER_S", 1.0)  # on any machine
    monkeypatch.setattr(index_builders, "FEW_VECTORS", 2600)
    vectors = unit_vectors(7, 3000, DIMENSIONS)
    texts = [f"c{i}" for i in range(3000)]
    for start in range(0, 2600, 650):
        part = slice(start, start + 650)
        await index.store.apply([index.document(f"d{start}", texts[part], vectors[part])])
    owner_url = database.owner_url if as_owner else None
    maintenance = Maintenance(index.database, owner_url, exact_chunks=1000)
    await maintenance.run_once()
    [(first_name, options)] = (await indexes(database)).items()
    assert options == ["m=12", "ef_construction=64"]
    await index.store.apply([index.document("tail", texts[2600:], vectors[2600:])])
    assert await recall(Index.of(index.database), vectors, 40) >= 0.95

    await index.store.apply([index.document("d0", [])])
    alive = [i for i in range(3000) if i >= 650]
    found = await index.candidates(vector=vectors[3], limit=50)
    assert {int(text[1:]) for text in await index.texts(found.vector[MODEL])} <= set(alive)
    assert len(found.vector[MODEL]) == 50

    await index.store.apply(
        [index.document("more", [f"x{i}" for i in range(1200)], vectors[:1200])]
    )
    await maintenance.run_once()
    assert await index_names(database) == [first_name], "nothing is built while much comes in"
    await maintenance.run_once()
    [(second_name, options)] = (await indexes(database)).items()
    assert options == ["m=16", "ef_construction=100"]
    assert second_name != first_name
    before_switch_is_noticed = await index.candidates(vector=vectors[700], limit=10)
    assert len(before_switch_is_noticed.vector[MODEL]) == 10
    await maintenance.run_once()
    assert await index_names(database) == [second_name]


async def test_the_index_of_a_large_project_has_no_upper_bound(
    index: Index, database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index of many vectors includes later ones, so it is never built again as it grows."""
    monkeypatch.setattr(vector_indexes, "OPEN_VECTORS", 1_500)
    monkeypatch.setattr(vector_indexes, "IMPORT_VECTORS_PER_S", inf)  # ignore its own import
    vectors = unit_vectors(7, 3000, DIMENSIONS)
    texts = [f"c{i}" for i in range(3000)]

    async def grow(start: int, end: int) -> None:
        part = slice(start, end)
        await index.store.apply([index.document(f"d{start}", texts[part], vectors[part])])
        indexes = VectorIndexes(index.database, database.owner_url, exact_chunks=800)
        live = await index.live()
        await indexes.refresh(live.project_id, live.id)

    await grow(0, 1_000)
    [bounded] = await index_names(database)
    await grow(1_000, 2_000)
    [unbounded] = await index_names(database)
    assert unbounded.endswith(str(vector_indexes.UNBOUNDED))
    assert unbounded != bounded
    await grow(2_000, 3_000)
    assert await index_names(database) == [unbounded], "Postgres adds later vectors to it"
    assert await recall(Index.of(index.database), vectors, 40) >= 0.95
    assert await index_findings(index.database, await index.live()) == []


async def recall(
    index: Index, vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]], queries: int
) -> float:
    """Share of the exact ten nearest that the search finds."""
    hits = 0
    for query in (
        unit_vectors(7, 3000, DIMENSIONS)[:queries] + unit_vectors(9, queries, DIMENSIONS) / 4
    ):
        vector = (query / np.linalg.norm(query)).astype(np.float32)
        wanted = {f"c{i}" for i in np.argsort(-(vectors @ vector))[:10]}
        found = await index.candidates(vector=vector, limit=10)
        hits += len(wanted & set(await index.texts(found.vector[MODEL])))
    return hits / (10 * queries)


async def test_filters_hold_with_an_index(index: Index, database: Fresh) -> None:
    """Rare and common filters both return a full and nearly exact result with an index."""
    vectors = unit_vectors(8, 3000, DIMENSIONS)
    await index.store.apply(
        [index.document("common", [f"c{i}" for i in range(2900)], vectors[:2900])]
    )
    await index.store.apply(
        [index.document("rare", [f"r{i}" for i in range(100)], vectors[2900:], kind="code")]
    )
    await Maintenance(index.database, database.owner_url, exact_chunks=1000).run_once()
    rare, common = (vectors[2900:], "r"), (vectors[:2900], "c")
    for fields, (rows, letter) in (
        ({"kinds": [Kind.CODE]}, rare),
        ({"kinds": [Kind.TEXT]}, common),
        ({"where": "not uri like 'com%'"}, rare),
        ({"path_globs": ["!rare"]}, common),
    ):
        filters = Filters.model_validate(fields)
        found = await index.candidates(vector=vectors[0], filters=filters, limit=30)
        texts = await index.texts(found.vector[MODEL])
        wanted = {f"{letter}{i}" for i in np.argsort(-(rows @ vectors[0]))[:30]}
        assert len(wanted & set(texts)) >= 28


async def test_small_projects_get_no_index(index: Index, database: Fresh) -> None:
    """A project up to the limit gets no vector index."""
    await index.store.apply(
        [index.document("d", [f"c{i}" for i in range(300)], unit_vectors(1, 300, 8))]
    )
    await Maintenance(index.database, database.owner_url, exact_chunks=300).run_once()
    assert await index_names(database) == []


async def test_a_worker_builds_for_its_own_project_only(index: Index) -> None:
    """A worker can't build or drop a vector index of another project."""
    await index.write("d", "x", vectors=unit_vectors(1, 1, 8))
    await index.write("d", "x", vectors=unit_vectors(1, 1, 8), project="q")
    own, foreign = await index.live("p"), await index.live("q")
    for call in (
        f"select build_vector_index('embeddings_hnsw_{foreign.id}_1_5', {foreign.id}, 1, 8, 5)",
        f"select build_vector_index('embeddings_hnsw_{own.id}_1_5', {foreign.id}, 1, 8, 5)",
        f"select build_vector_index('embeddings_hnsw_{foreign.id}_1_5', {own.id}, 1, 8, 5)",
        f"select build_vector_index('embeddings_hnsw_{own.id}_1_5', {foreign.id}, 1, 8, 5, 64)",
        f"select build_vector_index('x; drop table chunks', {own.id}, 1, 8, 5)",
        f"select drop_vector_index('embeddings_hnsw_{foreign.id}_1_5')",
        "select drop_vector_index('chunks_pkey')",
        "select drop_vector_index('a_b_c')",
    ):
        with pytest.raises(Exception, match="not an index of the current project"):
            async with index.database.scope(own.project_id, None, own.id) as connection:
                await connection.execute(call)


async def test_maintenance_stops_on_request(index: Index) -> None:
    """The maintenance loop ends at once when it is stopped."""
    stop = asyncio.Event()
    running = asyncio.create_task(Maintenance(index.database).run(stop))
    await asyncio.sleep(0)
    stop.set()
    async with within(10):
        await running


async def plan(index: Index, sql: str, *arguments: object) -> str:
    live = await index.live()
    async with index.database.scope(live.project_id, EVERY_AGENT, live.id) as connection:
        rows = await connection.fetch(f"explain {sql}", *arguments)
    return "\n".join(row[0] for row in rows)


async def test_plans_keep_their_indexes_under_row_level_security(
    index: Index, database: Fresh
) -> None:
    """Queries of a worker use the primary keys and the partial vector index."""
    vectors = unit_vectors(8, 3000, DIMENSIONS)
    for project in ("p", "q"):
        for start in range(0, 3000, 1000):
            texts = [f"c{i} d{i % 50}" for i in range(start, start + 1000)]
            part = vectors[start : start + 1000]
            await index.store.apply([index.document(f"d{start}", texts, part, project=project)])
        few = [index.document(f"few{i}", [f"e{i}"], project=project) for i in range(1000)]
        await index.store.apply(few)  # a table of one page is best read as a whole
    await Maintenance(index.database, database.owner_url, exact_chunks=1000).run_once()
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("analyze")
    await owner.close()
    generation_id = (await index.live()).id
    vector = vectors[0].astype(np.float16)
    postings = await plan(
        index, named("keyword")["read_segments"], generation_id, [], [1, 2, 3], False
    )
    assert "keyword_postings_pkey" in postings
    assert "Seq Scan on keyword_postings" not in postings
    numbers = {
        "generation_id": generation_id,
        "model_id": 1,
        "dimensions": DIMENSIONS,
        "is_example": "false",
        "visible": "",
        "limit": 10,
    }
    exact = named("vectors")["exact"].format(**numbers)
    assert "embeddings_hnsw" not in await plan(index, exact, vector)
    watermark = int((await index_names(database))[0].rpartition("_")[2])
    indexed = named("vectors")["indexed"].format(**numbers, watermark=watermark)
    filters = Filters.model_validate({"where": "v > 3 or uri like 'd%'", "path_globs": ["d*"]})
    condition = Visibility(generation_id, filters).of_chunk("e.chunk_id", 2, one_by_one=True)
    visible = {"visible": f"and {condition.sql}"}
    filtered = named("vectors")["indexed"].format(**numbers | visible, watermark=watermark)
    for sql, arguments in ((indexed, ()), (filtered, condition.arguments)):
        chosen = await plan(index, sql, vector, *arguments)
        assert f"Index Scan using embeddings_hnsw_{generation_id}_1_" in chosen
        assert "Seq Scan on embeddings" not in chosen
        assert "Seq Scan on documents" not in chosen


async def test_new_tables_get_statistics(index: Index, database: Fresh) -> None:
    """New tables get statistics soon after an import."""
    await index.store.apply([index.document(f"d{i}", [f"walrus {i}"]) for i in range(300)])
    owner = await asyncpg.connect(database.owner_url)
    maintenance = Maintenance(index.database)
    async with within(20):
        while await owner.fetchval("select reltuples from pg_class where relname = 'chunks'") < 300:
            await maintenance.run_once()
    await owner.close()


async def _without_autovacuum(owner: asyncpg.Connection) -> None:
    """Keep the server from analyzing new tables by itself."""
    for row in await owner.fetch(
        "select oid::regclass::text as name from pg_class "
        "where relkind = 'r' and relnamespace = 'public'::regnamespace"
    ):
        await owner.execute(f"alter table {row['name']} set (autovacuum_enabled = off)")


async def _new_tables(owner: asyncpg.Connection, *others: str) -> set[str]:
    """Tables that are new, besides ``others``."""
    rows = await owner.fetch(
        "select relname from pg_stat_user_tables "
        "where n_live_tup > 100 and last_analyze is null and relname <> all($1)",
        others,
    )
    return {row["relname"] for row in rows}


async def _are_analyzed(owner: asyncpg.Connection, tables: set[str]) -> bool:
    return not tables & await _new_tables(owner)


async def test_statistics_know_each_large_generation(index: Index, database: Fresh) -> None:
    """They are made again for one that came after them. Otherwise no row of it is expected."""
    owner = await asyncpg.connect(database.owner_url)
    await _without_autovacuum(owner)
    texts = [f"walrus {number}" for number in range(1_500)]
    for project in ("first", "second"):
        await index.store.apply([index.document("d", texts, project=project)])
        generation = await index.live(project)

        async def expected(generation_id: int = generation.id) -> int:
            query = (
                f"explain (format json) select from chunks where generation_id = {generation_id}"
            )
            return int(json.loads(await owner.fetchval(query))[0]["Plan"]["Plan Rows"])

        async with within(30):
            while not await owner.fetchval(
                "select in_statistics from generations where id = $1", generation.id
            ):
                await analyze(index.database, [generation.project_id])
        assert await expected() > 1_000
    await owner.close()


async def test_a_generation_is_known_once_its_chunks_are_analyzed(
    index: Index, database: Fresh
) -> None:
    """If that fails, they are analyzed later, and the other tables at once."""
    owner = await asyncpg.connect(database.owner_url)
    await _without_autovacuum(owner)
    texts = [f"walrus {number}" for number in range(1_500)]
    await index.store.apply([index.document("d", texts)])
    generation = await index.live()

    async def is_counted() -> bool:
        changed = "select pg_stat_get_mod_since_analyze('chunks'::regclass)"
        return bool(await owner.fetchval(changed) >= 1_000)

    async def is_known() -> bool:
        known = "select in_statistics from generations where id = $1"
        return bool(await owner.fetchval(known, generation.id))

    await write_many(index, 110)
    await eventually(is_counted, "the server has counted the rows")
    others = await eventually(lambda: _new_tables(owner, "chunks"), "and those of other tables")
    async with owner.transaction():
        await owner.execute("lock table chunks in share update exclusive mode")
        assert not await analyze(index.database, [generation.project_id])
    assert not await is_known()

    await eventually(lambda: _are_analyzed(owner, others), "the other tables are analyzed")
    assert await analyze(index.database, [generation.project_id])
    assert await is_known()
    await owner.close()


async def test_chunks_that_can_not_be_analyzed_are_left_alone_for_a_while(
    index: Index, database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each visit would wait for them otherwise. Other new tables are analyzed."""
    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    owner = await asyncpg.connect(database.owner_url)
    await _without_autovacuum(owner)
    await write_many(index, 110)
    others = await eventually(lambda: _new_tables(owner, "chunks"), "the rows are counted")
    keeper = Maintenance(index.database)
    keeper._statistics_from = inf
    await keeper._keep_keywords()

    await eventually(lambda: _are_analyzed(owner, others), "the other tables are analyzed")
    assert "chunks" in await _new_tables(owner)
    async with owner.transaction():
        await owner.execute("lock table chunks in share update exclusive mode")
        keeper._statistics_from = 0.0
        await index.write("e", "text")
        await keeper._keep_keywords()
    assert keeper._statistics_from > monotonic() + 60
    await owner.close()


async def test_projects_are_kept_while_tables_are_analyzed(
    index: Index, database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other worker takes them, though all tables together may take longer than a lease."""
    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    owner = await asyncpg.connect(database.owner_url)
    await _without_autovacuum(owner)
    await write_many(index, 70)
    await eventually(lambda: _new_tables(owner, "chunks"), "the server has counted the rows")
    other = DueProjects(index.database, Task.SEGMENTS)
    taken: list[list[DueProject]] = []

    async def analyze_slowly(*arguments: Any) -> None:
        await owner.execute("update maintenance_due set due_at = now()")  # the lease ends
        await analyze_tables(*arguments)
        taken.append(await other.take())

    monkeypatch.setattr(statistics, "analyze_tables", analyze_slowly)
    await Maintenance(index.database)._keep_keywords()
    await owner.close()
    assert taken == [[]]


async def test_a_locked_new_table_keeps_no_segment_from_being_merged(
    index: Index, database: Fresh
) -> None:
    """Segments are merged while another session analyzes a new table or builds an index on it."""
    owner = await asyncpg.connect(database.owner_url)
    await _without_autovacuum(owner)
    await write_many(index, 70)
    await eventually(lambda: _new_tables(owner), "the server has counted the rows")
    async with owner.transaction():
        await owner.execute("lock table chunks, embeddings in share update exclusive mode")
        await owner.execute("lock table keyword_postings in share update exclusive mode")
        await Maintenance(index.database).run_once()
    await owner.close()
    assert len(await sizes(index)) < 20


async def test_a_project_that_fails_keeps_no_other_from_its_turn(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing project is tried again later, and does not stop the maintenance of others."""

    class Faulty(Maintenance):
        def __init__(self, database: Database, faulty: int) -> None:
            super().__init__(database, interval=timedelta(milliseconds=10))
            self.faulty = faulty
            self.failures = 0
            self.turns = 0

        async def tidy_keywords(self, generation: Generation) -> bool:
            if generation.project_id == self.faulty:
                self.failures += 1
                raise ValueError("a defect")
            self.turns += 1
            return True

    monkeypatch.setattr(maintenance, "RETRY_AFTER", timedelta())
    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    await index.write("a", "text", project="first")
    await index.write("b", "text", project="second")
    faulty = Faulty(index.database, (await index.live("first")).project_id)
    stop = asyncio.Event()
    running = asyncio.create_task(faulty.run(stop))
    await eventually(lambda: faulty.failures >= 2 and faulty.turns, "a turn of each project")
    stop.set()
    await running
    assert faulty.turns == 1, "nothing was written to the other project since"


async def sweep_notes(index: Index, project: str) -> int:
    """Number of notes that the segments of a project are to be searched for deleted chunks."""
    project_id = (await index.live(project)).project_id
    async with index.database.connection() as connection:
        return int(
            await connection.fetchval(
                "select count(*) from maintenance_due where task = 'sweep' and project = $1",
                project_id,
            )
        )


async def test_a_project_that_fails_keeps_no_other_from_its_sweep(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that was written to is swept later, although another one fails."""

    class Faulty(Maintenance):
        async def tidy_keywords(self, generation: Generation) -> bool:
            if generation.project_id == faulty:
                raise ValueError("a defect")
            return True

    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    await index.write("a", "text", project="first")
    await index.write("b", "text", project="second")
    faulty = (await index.live("first")).project_id
    async with index.database.connection() as connection:  # a round would note it, too
        await connection.execute("delete from maintenance_due where task = 'round'")
    stop = asyncio.Event()
    running = asyncio.create_task(
        Faulty(index.database, interval=timedelta(milliseconds=10)).run(stop)
    )
    await eventually(lambda: sweep_notes(index, "second"), "the note of a sweep")
    stop.set()
    await running


async def test_what_is_written_during_a_sweep_is_swept_later(index: Index) -> None:
    """A sweep that has begun may have missed it, so its note does not count."""
    await index.write("a", "text", project="p")
    project_id = (await index.live("p")).project_id
    sweeps = DueProjects(index.database, Task.SWEEP)
    await sweeps.note([project_id], timedelta(minutes=5))
    await sweeps.note([project_id], timedelta(minutes=5))
    assert await sweep_notes(index, "p") == 1
    async with index.database.connection() as connection:
        await connection.execute("update maintenance_due set due_at = due_at - interval '1 hour'")
    begun = await sweeps.take()
    await sweeps.note([project_id], timedelta(minutes=5))
    await sweeps.settle(begun)
    assert await sweep_notes(index, "p") == 1


async def test_segments_are_folded_while_an_index_is_built(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments are merged while a vector index is being built."""

    class Building(Maintenance):
        folded = 0
        builds = 0

        async def tidy_keywords(self, generation: Generation) -> bool:
            self.folded += 1
            return True

        async def _refresh_indexes(self, live: Generation) -> bool:
            self.builds += 1
            await asyncio.Event().wait()
            return True

    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    building = Building(index.database, interval=timedelta(milliseconds=10))
    running = asyncio.create_task(building.run(asyncio.Event()))
    await index.write("a", "text", vectors=unit_vectors(1, 1, 8))
    await eventually(lambda: building.builds and building.folded, "a build has begun")
    await index.write("b", "text")
    await eventually(lambda: building.folded == 2, "a turn during the build")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_only_projects_that_were_written_to_are_due(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers share the projects that were written to; an hourly round notes all projects."""
    ids = {}
    for project in ("alpha", "beta", "gamma"):
        await index.store.apply([document_write("a", 10, ["one"], project=project)])
        ids[project] = (await index.store.generation(project)).project_id
    segments, other = (DueProjects(index.database, Task.SEGMENTS) for _ in range(2))
    assert await segments.take() == [], "they have few notes, and no old one"
    for position in range(11, 11 + due_projects.MOST_NOTES):
        await index.store.apply(
            [document_write("a", position, [f"more {position}"], project="beta")]
        )
    [beta] = await segments.take()
    assert beta.project_id == ids["beta"]
    await segments.postpone([beta], timedelta())
    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    due = await segments.take()
    assert [project.project_id for project in due] == list(ids.values())
    assert await other.take() == [], "another worker has them"
    alpha, beta, gamma = due
    await segments.settle([alpha])
    await segments.postpone([beta], timedelta())
    assert [project.project_id for project in await other.take()] == [beta.project_id]
    await index.store.apply([document_write("b", 20, ["two"], project="gamma")])
    [noted] = await other.take()
    assert noted.project_id == gamma.project_id
    assert set(noted.notes).isdisjoint(gamma.notes), "settling one visit keeps later notes"
    await segments.settle([beta, gamma, noted])

    monkeypatch.setattr(due_projects, "ROUND", timedelta())
    sweeps = DueProjects(index.database, Task.SWEEP)
    await sweeps.begin_round()
    assert [project.project_id for project in await sweeps.noted()] == list(ids.values())
    monkeypatch.setattr(due_projects, "ROUND", timedelta(hours=1))
    await sweeps.begin_round()
    await sweeps.begin_round()
    async with index.database.connection() as connection:
        notes = await connection.fetchval(
            "select count(*) from maintenance_due where task = 'sweep'"
        )
    assert notes == 6, "the next round begins in an hour"
    assert await segments.take() == []


async def test_projects_wait_for_vectors_until_they_have_them(
    index: Index, database: Fresh
) -> None:
    """Waiting projects are those with pending chunks; the notes of the others are removed."""
    without_vector = chunk_write(0, "Herons nest in March.", model=MODEL, vector=None)
    writes = [
        document_write("a.md", 10 + number, project=project, chunks=(without_vector,))
        for number, project in enumerate(("p", "p", "q"))
    ]
    for write in writes:
        await index.store.apply([replace(write, uri=f"{write.position}.md")])
    ids = {name: (await index.live(name)).project_id for name in ("p", "q")}
    assert await waiting_projects(index.database) == set(ids.values())
    gone = replace(writes[2], uri="12.md", position=20, change="delete", chunks=())
    await index.store.apply([gone])
    assert await waiting_projects(index.database) == {ids["p"]}
    assert await overdue_projects(index.database, timedelta()) == {ids["p"]}
    assert await overdue_projects(index.database, timedelta(hours=1)) == set()
    owner = await asyncpg.connect(database.owner_url)
    notes = await owner.fetch("select project from maintenance_due where task = 'requests'")
    await owner.close()
    assert [row["project"] for row in notes] == [ids["p"]]


async def test_documents_of_one_write_leave_one_note(index: Index, database: Fresh) -> None:
    """A write of many documents without vectors notes its project once, with all their chunks."""
    chunks = [
        chunk_write(number, f"Heron {number}.", model=MODEL, vector=None) for number in range(3)
    ]
    await index.store.apply(
        [
            document_write(f"{number}.md", 10 + number, project="p", chunks=chunks[:number])
            for number in range(1, 4)
        ]
    )
    live = await index.live("p")
    async with index.database.scope(live.project_id, "*", live.id) as connection:
        rows = await connection.fetch(
            "select cardinality(chunk_ids) as chunks, headers, position from pending_vectors "
            "order by position"
        )
    assert [(row["position"], row["chunks"]) for row in rows] == [(11, 1), (12, 2), (13, 3)]
    assert [len(row["headers"]) for row in rows] == [1, 2, 3]
    owner = await asyncpg.connect(database.owner_url)
    notes = await owner.fetchval("select count(*) from maintenance_due where task = 'requests'")
    await owner.close()
    assert notes == 1


async def test_a_note_is_kept_while_another_process_removes_notes(index: Index) -> None:
    """A process that found no pending chunk may remove its notes after others have appeared."""
    without_vector = chunk_write(0, "Herons nest in March.", model=MODEL, vector=None)
    write = document_write("a.md", 10, project="p", chunks=(without_vector,))
    await index.store.apply([write])
    await index.store.apply([replace(write, position=20, change="delete", chunks=())])
    project_id = (await index.live("p")).project_id
    async with index.database.connection() as other, other.transaction():
        assert await other.fetch("select * from waiting_projects()") == []
        await index.store.apply([replace(write, uri="b.md", position=30)])
        assert await waiting_projects(index.database) == {project_id}
    assert await waiting_projects(index.database) == {project_id}
