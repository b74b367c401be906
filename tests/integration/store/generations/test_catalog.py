"""Several generations of a project on a real database."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from events.models import Filters
from events.names import LogPosition
from runtime.errors import NotFound, UnknownProject
from store.generations.catalog import Generation, Recipe
from store.generations.switch import GenerationMoved
from store.postgres.locks import Lock
from store.postgres.pool import EVERY_AGENT, Database
from store.search.maintenance import Maintenance
from store.search.search import Search
from store.store import Store
from store.types import SearchRequest
from tests.support.databases import Database as FreshDatabase
from tests.support.waiting import eventually
from tests.support.writes import (
    MODEL,
    RECIPE,
    add_generation,
    chunk_write,
    contents_of,
    document_write,
    switch,
    vector_of,
)


async def found_by_both_legs(search: Search, generation: Generation, text: str) -> set[str]:
    """Texts of the chunks that both retrievers find."""
    vectors = {MODEL: vector_of(text).astype(np.float32)}
    request = SearchRequest("alpha", None, text, vectors, Filters(), 10)
    found = await search.candidates(generation, request)
    ids = [chunk_id for leg in (found.keyword, found.vector[MODEL]) for chunk_id, _ in leg]
    return {row.content for row in (await search.rows(generation, None, ids)).values()}


async def count(worker: Database, generation: Generation, table: str) -> int:
    scope = worker.scope(generation.project_id, EVERY_AGENT, generation.id)
    async with scope as connection:
        return int(await connection.fetchval(f"select count(*) from {table}"))  # noqa: S608


async def test_a_project_begins_with_a_live_generation_of_the_store_s_recipe(
    worker: Database,
) -> None:
    """The first store creates the live generation with its recipe; others use it."""
    recipe = Recipe("a/model", {"code": "b/model"}, "1:64", 1)
    assert await Store(worker, recipe).live("alpha") is None
    stores = [Store(worker, recipe) for _ in range(4)]
    generations = await asyncio.gather(*(one.generation("alpha") for one in stores))
    assert len({one.id for one in generations}) == 1
    assert (generations[0].state, generations[0].recipe) == ("live", recipe)
    assert await Store(worker, RECIPE).live("alpha") == generations[0]
    assert await Store(worker, RECIPE).generations("alpha") == [generations[0]]
    assert await Store(worker, RECIPE).generations("beta") == []


async def test_generations_of_a_project_do_not_see_each_other(
    store: Store, worker: Database
) -> None:
    """Generations of a project are written, searched and read separately."""
    await store.apply([document_write("a", 10, ["old walrus"])])
    live, other = await store.generation("alpha"), await add_generation(worker, store, "alpha")
    await store.rebuild(other, [document_write("a", 10, ["new walrus"])])
    search = Search(worker)
    assert await found_by_both_legs(search, live, "walrus") == {"old walrus"}
    assert await found_by_both_legs(search, other, "walrus") == {"new walrus"}
    request = SearchRequest("alpha", None, "walrus", {}, Filters(), 10)
    ids = [chunk_id for chunk_id, _ in (await search.candidates(other, request)).keyword]
    assert await search.rows(live, None, ids) == {}
    await store.apply([document_write("a", 20, change="delete")])
    assert await contents_of(worker, live) == {}
    assert await contents_of(worker, other) == {("", "a"): ["new walrus"]}


async def test_a_question_follows_a_switch(store: Store, worker: Database) -> None:
    """A question to the live generation uses the new one after a switch."""
    await store.apply([document_write("a", 10, ["old walrus"])])
    other = await add_generation(worker, store, "alpha")
    await store.rebuild(other, [document_write("a", 10, ["new walrus"])])
    search = Search(worker)
    before = await search.live("alpha")
    await switch(worker, other)
    after = await search.live("alpha")
    assert (before.state, after.state, after.id) == ("live", "live", other.id)
    assert await found_by_both_legs(search, after, "walrus") == {"new walrus"}
    assert await found_by_both_legs(search, before, "walrus") == {"old walrus"}
    assert (await search.generation("alpha", before.id)).state == "former"


async def test_an_unknown_generation_names_the_cure(store: Store, worker: Database) -> None:
    """An unknown generation, also one of another project, is refused with a remedy."""
    await store.generation("alpha")
    foreign = await store.generation("beta")
    with pytest.raises(NotFound, match=r"no generation .*headrace replay list"):
        await Search(worker).generation("alpha", foreign.id)
    with pytest.raises(UnknownProject, match="no project 'gamma'"):
        await Search(worker).live("gamma")


async def test_changes_prepared_for_a_former_generation_are_refused(
    store: Store, worker: Database
) -> None:
    """A change that was prepared for a former generation is refused without any write."""
    former = await store.generation("alpha")
    other = await add_generation(worker, store, "alpha")
    await switch(worker, other)
    stale = [document_write(uri, 10, [uri], generation_id=former.id) for uri in "ab"]
    with pytest.raises(GenerationMoved, match=f"generation {former.id} is not live any more"):
        await store.apply(stale)
    assert await contents_of(worker, former) == await contents_of(worker, other) == {}
    assert await store.handled([("alpha", LogPosition(10, 0))]) == set()
    again = [document_write("a", 10, ["a"], generation_id=other.id)]
    assert [one.outcome for one in await store.apply(again)] == ["indexed"]
    assert await contents_of(worker, other) == {("", "a"): ["a"]}


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_change_waits_for_a_switch_and_goes_by_it(
    store: Store, worker: Database, database: FreshDatabase, prepared: bool
) -> None:
    """A change waits for a switch in progress, and then applies only to the new generation."""
    former = await store.generation("alpha")
    other = await add_generation(worker, store, "alpha")
    write = document_write("a", 10, ["a"], generation_id=former.id if prepared else 0)
    async with worker.scope(former.project_id) as switching:
        await switching.execute(
            "select pg_advisory_xact_lock($1, $2)", Lock.SWITCH, former.project_id
        )
        applying = asyncio.create_task(store.apply([write]))
        await _a_session_waits_for_a_lock(worker)
        await switching.execute("update generations set state = 'former' where state = 'live'")
        await switching.execute("update generations set state = 'live' where id = $1", other.id)
    if prepared:
        with pytest.raises(GenerationMoved):
            await applying
        assert await contents_of(worker, other) == {}
    else:
        assert [one.outcome for one in await applying] == ["indexed"]
        assert await contents_of(worker, other) == {("", "a"): ["a"]}
    assert await contents_of(worker, former) == {}


async def _a_session_waits_for_a_lock(worker: Database) -> None:
    async def waits() -> bool:
        async with worker.connection() as connection:
            return bool(
                await connection.fetchval(
                    "select exists (select from pg_locks where locktype = 'advisory' "
                    "and not granted and database = (select oid from pg_database "
                    "where datname = current_database()))"
                )
            )

    await eventually(waits, "the change waits")


async def test_a_change_that_a_replay_was_quicker_to_apply_counts_as_indexed(
    store: Store, worker: Database
) -> None:
    """A change that a replay has already stored is reported as indexed and not written again."""
    change = document_write("b", 10, ["one", "two"], change="rename", old_uri="a")
    live = await store.generation("alpha")
    await store.rebuild(live, [change])
    assert await store.handled([("alpha", LogPosition(10, 0))]) == set()
    (applied,) = await store.apply([change])
    assert (applied.outcome, applied.chunks_kept, applied.chunks_added) == ("indexed", 2, 0)
    assert await store.handled([("alpha", LogPosition(10, 0))]) == {("alpha", LogPosition(10, 0))}
    assert await contents_of(worker, live) == {("", "b"): ["one", "two"]}
    assert (await store.apply([change]))[0].outcome == "duplicate"


async def test_of_an_equal_position_in_another_partition_only_one_stands(store: Store) -> None:
    """Only the change of the higher partition counts if two have the same position."""
    await store.apply([document_write("a", 10, ["one"], partition=1)])
    (applied,) = await store.apply([document_write("a", 10, ["two"], partition=0)])
    assert applied.outcome == "superseded"


async def test_rebuilding_twice_and_late_changes_nothing(store: Store, worker: Database) -> None:
    """A repeated rebuild and a late change write nothing."""
    other = await add_generation(worker, store, "alpha")
    writes = [
        document_write("a", 20, ["one"]),
        document_write("a", 21, ["ann's"], agent="ann"),
        document_write("b", 22, change="delete"),
    ]
    for added in (1, 0):
        applied = await store.rebuild(other, writes)
        assert [one.outcome for one in applied] == ["indexed"] * 3
        assert [one.chunks_added for one in applied] == [added, added, 0]
    (late,) = await store.rebuild(other, [document_write("a", 10, ["old"])])
    assert late.outcome == "superseded"
    assert await contents_of(worker, other) == {("", "a"): ["one"], ("ann", "a"): ["ann's"]}
    assert (await store.statistics("alpha"))[0].outcomes == {}


DAMAGE = (
    "delete from chunks where content = 'seagull'",
    "update chunks set content = 'dodo' where content = 'walrus'",
    "update chunks set ordinal = 7 where content = 'walrus'",
    "delete from embeddings",
    "delete from keyword_segments",
    "update documents set title = 'Wrong', kind = 'code'",
    "update documents set deleted = true",
    "delete from document_collections",
)


async def test_force_repairs_what_was_changed_by_hand(store: Store, worker: Database) -> None:
    """A forced rebuild repairs a document whose position is right."""
    write = document_write("a", 10, ["walrus", "seagull"], title="Right", collections=("birds",))
    await store.apply([write])
    live = await store.generation("alpha")
    whole = await _everything(worker, live)
    for damage in DAMAGE:
        async with worker.scope(live.project_id, None, live.id) as connection:
            await connection.execute(damage)
        await store.rebuild(live, [write])
        assert await _everything(worker, live) != whole, damage
        (applied,) = await store.rebuild(live, [write], force=True)
        assert (applied.outcome, applied.chunks_added) == ("indexed", 2), damage
        assert await _everything(worker, live) == whole, damage


async def _everything(worker: Database, generation: Generation) -> object:
    """Stored rows, and results of keyword and vector search."""
    async with worker.scope(generation.project_id, EVERY_AGENT, generation.id) as connection:
        rows = await connection.fetch(
            "select d.uri, d.title, d.kind, d.deleted, d.position, c.ordinal, c.content, "
            "e.embedding is not null, k.name from documents d "
            "left join chunks c on c.document_id = d.id "
            "left join embeddings e on e.chunk_id = c.id "
            "left join document_collections dc on dc.document_id = d.id "
            "left join collections k on k.id = dc.collection_id order by d.uri, c.ordinal"
        )
    search = Search(worker)
    request = SearchRequest("alpha", None, "walrus seagull", {}, Filters(), 10)
    worded = [score for _, score in (await search.candidates(generation, request)).keyword]
    similar = [await found_by_both_legs(search, generation, text) for text in ("walrus", "seagull")]
    return [tuple(row) for row in rows], len(worded), similar


async def test_a_late_change_is_not_forced(store: Store, worker: Database) -> None:
    """A forced rebuild does not restore an older change."""
    await store.apply([document_write("a", 20, ["new"])])
    live = await store.generation("alpha")
    (applied,) = await store.rebuild(live, [document_write("a", 10, ["old"])], force=True)
    assert applied.outcome == "superseded"
    assert await contents_of(worker, live) == {("", "a"): ["new"]}


async def test_vectors_are_shared_by_the_generations_of_a_project(
    store: Store, worker: Database
) -> None:
    """Generations of a project share the vector cache."""
    other = await add_generation(worker, store, "alpha")
    await store.rebuild(other, [document_write("a", 10, ["one"])])
    known = chunk_write(0, "one").content_hash
    assert list(await store.known_vectors("alpha", MODEL, [known])) == [known]


async def test_generations_may_have_models_of_different_widths(
    store: Store, worker: Database
) -> None:
    """Generations with models of different widths are searched by their own vectors."""
    await store.apply([document_write("a", 10, ["one"])])
    wide = chunk_write(0, "one", model="wide/model", vector=vector_of("one", dimensions=32))
    other = await add_generation(worker, store, "alpha", Recipe("wide/model"))
    await store.rebuild(other, [document_write("a", 10, chunks=(wide,))])
    search = Search(worker)
    vectors = {"wide/model": vector_of("one", dimensions=32).astype(np.float32)}
    request = SearchRequest("alpha", None, None, vectors, Filters(), 10)
    found = await search.candidates(other, request)
    assert len(found.vector["wide/model"]) == 1
    assert found.degraded == ()


async def test_statistics_are_those_of_the_live_generation(store: Store, worker: Database) -> None:
    """Statistics are those of the live generation, with the number of generations."""
    await store.apply([document_write("a", 10, ["one", "two"])])
    other = await add_generation(worker, store, "alpha")
    await store.rebuild(other, [document_write("a", 10, ["one"]), document_write("b", 11, ["x"])])
    (before,) = await store.statistics("alpha")
    assert (before.documents, before.chunks, before.generations) == (1, 2, 2)
    await switch(worker, other)
    (after,) = await store.statistics("alpha")
    assert (after.documents, after.chunks, after.generation) == (2, 2, other.id)
    assert before.generation != other.id


async def test_upkeep_works_on_the_live_generation(store: Store, worker: Database) -> None:
    """Maintenance merges segments of the live generation only."""
    other = await add_generation(worker, store, "alpha")
    live = await store.generation("alpha")
    for position in range(10, 30):
        write = document_write(f"d{position}", position, [f"walrus {position}"])
        await store.apply([write])
        await store.rebuild(other, [write])
    maintenance = Maintenance(worker)
    await maintenance.run_once()
    segments = [await count(worker, one, "keyword_segments") for one in (live, other)]
    assert segments[0] < 10
    assert segments[1] == 20
    await switch(worker, other)
    await maintenance.run_once()
    assert await count(worker, other, "keyword_segments") < 10
