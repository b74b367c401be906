"""Rows that leave Postgres after their time, and what must never come back because of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from events.models import Problem
from events.names import LogPosition, position_at
from runtime.errors import OutdatedChange
from runtime.settings import RetentionSettings
from store.generations.catalog import Projects
from store.postgres.locks import replay_lock
from store.postgres.pool import Database
from store.purge.expiry import Expiry
from store.search.vector_indexes import VectorIndexes
from store.store import Store
from store.views.batches import Batches
from tests.support.databases import Database as FreshDatabase
from tests.support.writes import (
    RECIPE,
    add_generation,
    contents_of,
    document_write,
    opened,
    switch,
)

NOW = datetime.now(UTC)
OLD = position_at(NOW - timedelta(days=200))
YOUNG = position_at(NOW - timedelta(days=10))


@pytest.fixture
async def archiver(database: FreshDatabase) -> AsyncIterator[Database]:
    """The fresh database as the archiver has it: with a worker's role."""
    async with opened(database.worker_url) as opened_database:
        yield opened_database


def expiry_of(database: Database, **times: Any) -> Expiry:
    indexes = VectorIndexes(database, None, 10_000)
    return Expiry(database, indexes, RetentionSettings.model_validate(times))


async def expire(
    database: Database, delivered_from: datetime = NOW, **times: Any
) -> dict[str, int]:
    return dict(await expiry_of(database, **times).run_once(delivered_from))


async def age_ledger(database: FreshDatabase, condition: str = "true") -> None:
    await database.as_owner(
        f"update ledger set handled_at = now() - interval '100 days' where {condition}",  # noqa: S608
    )


async def uris_of(worker: Database, store: Store) -> set[str]:
    return {uri for _, uri in await contents_of(worker, await store.generation("alpha"))}


async def test_old_outcomes_leave_the_ledger_and_stay_in_the_sums_of_their_batch(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase
) -> None:
    """Applied changes expire, rejections and the end of each stream stay, progress is the same."""
    batches = Batches(worker, Projects(worker, RECIPE))
    await batches.begin("alpha", "import")
    await batches.update("alpha", "import", published=4)
    await store.apply(
        [
            document_write("a", OLD, ["x"], batch="import", tokens_embedded=7, cost_usd=0.5),
            document_write("a", OLD + 2, ["y"], batch="import", tokens_embedded=2, cost_usd=0.25),
            document_write("b", OLD + 4, ["z"], batch="import"),
            document_write("c", YOUNG, ["w"]),
        ]
    )
    problem = Problem(type="LimitExceeded", detail="too long")
    await store.record_rejected(
        project="alpha",
        partition=0,
        position=OLD + 6,
        event_id="e",
        problem=problem,
        batch="import",
    )
    await age_ledger(database, "uri is distinct from 'c'")
    before = await batches.progress("alpha", "import")
    assert (before.indexed, before.superseded, before.rejected) == (2, 1, 1)

    assert await expire(archiver, ledger=None) == {}
    assert await expire(archiver, delivered_from=NOW - timedelta(days=150)) == {}
    assert await expire(archiver) == {"ledger": 3}
    assert await expire(archiver) == {}

    after = await batches.progress("alpha", "import")
    for name in ("indexed", "superseded", "rejected", "published", "waiting", "chunks_added"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.tokens_embedded == before.tokens_embedded == 9
    assert after.cost_usd == before.cost_usd == 0.75
    assert await uris_of(worker, store) == {"a", "b", "c"}
    assert [
        await store.has_expired("alpha", LogPosition(position, 0))
        for position in (OLD, OLD + 4, OLD + 6, YOUNG, OLD - 2)
    ] == [True, True, False, False, False]


async def test_the_end_of_each_stream_stays_in_the_ledger(
    store: Store, archiver: Database, database: FreshDatabase
) -> None:
    """A stream that restarts behind the ledger is still noticed when all changes are old."""
    await store.apply(
        [document_write(name, OLD + number, ["x"]) for number, name in enumerate("abcd")]
    )
    await age_ledger(database)
    before = await store.reach("alpha")
    assert await expire(archiver) == {"ledger": 2}
    assert await store.reach("alpha") == before


async def test_a_change_that_was_applied_long_ago_has_no_effect_again(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase
) -> None:
    """The fence makes a redelivered change superseded when its entry has expired."""
    older = document_write("a", OLD, ["older"])
    await store.apply([older, document_write("a", OLD + 2, ["newer"])])
    await age_ledger(database)
    await expire(archiver)
    [applied] = await store.apply([older])
    assert applied.outcome == "superseded"
    assert (await contents_of(worker, await store.generation("alpha")))["", "a"] == ["newer"]


async def test_batches_expire_except_the_latest_of_a_source(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase
) -> None:
    """Old batches go with their last entry; the latest of each source stays."""
    batches = Batches(worker, Projects(worker, RECIPE))
    for batch, source in (("first", "s"), ("second", "s"), ("upload", None)):
        await batches.begin("alpha", batch, source_id=source)
        await batches.update("alpha", batch, ended=True)
    await store.apply(
        [
            document_write("a", OLD, ["x"], batch="first"),
            document_write("b", OLD + 2, ["x"], batch="second"),
            document_write("c", OLD + 4, ["x"], batch="upload"),
            document_write("d", YOUNG, ["x"]),
        ]
    )
    await age_ledger(database, "uri <> 'd'")
    assert await expire(archiver) == {"ledger": 3}
    await database.as_owner("update batches set ended_at = now() - interval '100 days'")
    await age_ledger(database)
    await store.apply([document_write("e", YOUNG + 2, ["x"])])
    assert await expire(archiver) == {"ledger": 1, "batches": 2}
    assert await database.as_owner("select array_agg(id) from batches") == ["second"]


@pytest.mark.parametrize("change", ["upsert", "delete", "rename"])
async def test_no_older_change_brings_back_a_document_whose_tombstone_has_expired(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase, change: str
) -> None:
    """A change below the mark is refused for every document without a row, a newer one is not."""
    await store.apply([document_write("gone", OLD, ["x"]), document_write("stays", OLD + 2, ["x"])])
    await store.apply([document_write("gone", OLD + 4, change="delete")])
    assert await expire(archiver, tombstones="P201D") == {}
    assert await expire(archiver, delivered_from=NOW - timedelta(days=300)) == {}
    assert await expire(archiver) == {"tombstones": 1}
    assert await database.as_owner("select count(*) from documents") == 1

    old_uri = "stays" if change == "rename" else None
    texts = [] if change == "delete" else ["x"]
    redriven = document_write("gone", OLD + 1, texts, change=change, old_uri=old_uri)
    [refused] = await store.apply([redriven])
    assert refused.outcome == "rejected"
    assert isinstance(refused.conflict, OutdatedChange)
    late = document_write("stays", OLD + 3, ["y"])
    assert (await store.apply([late]))[0].outcome == "indexed"
    assert await uris_of(worker, store) == {"stays"}
    assert await database.as_owner("select count(*) from documents") == 1

    [applied] = await store.apply([document_write("gone", OLD + 5, ["again"])])
    assert applied.outcome == "indexed"
    assert await uris_of(worker, store) == {"stays", "gone"}


async def test_tombstones_stay_while_a_former_generation_may_come_back(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase
) -> None:
    """A rollback needs the tombstones, because the former generation may have the documents."""
    await store.apply([document_write("gone", OLD, ["x"])])
    await switch(worker, await add_generation(worker, store, "alpha"))
    await store.apply([document_write("gone", OLD + 2, change="delete")])
    assert await expire(archiver) == {}
    assert await database.as_owner("select count(*) from documents where deleted") == 1


async def test_former_generations_are_dropped_after_their_time(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase
) -> None:
    """A former generation goes with all its rows; the live one and one being built never do."""
    await store.apply([document_write("a", YOUNG, ["x", "y"])])
    former = await store.generation("alpha")
    await switch(worker, await add_generation(worker, store, "alpha"))
    live = await store.generation("alpha")
    building = await add_generation(worker, store, "alpha")
    await store.rebuild(building, [document_write("a", YOUNG, ["x"])])

    async def switched(days: int) -> None:
        await database.as_owner(
            f"update generations set switched_at = now() - interval '{days} days' "  # noqa: S608
            f"where id = {live.id}",
        )
        await database.as_owner(
            "update generations set created_at = now() - interval '400 days', "  # noqa: S608
            f"switched_at = now() - interval '300 days' where id = {former.id}",
        )

    async def states() -> list[str]:
        return [generation.state for generation in await store.generations("alpha")]

    await switched(29)
    assert await expire(archiver) == {}
    await switched(31)
    assert await expire(archiver, generations=None) == {}
    async with replay_lock(worker, "alpha", live.project_id):
        assert await expire(archiver) == {}
    assert await states() == ["former", "live", "building"]
    assert await expire(archiver) == {"generations": 1}
    assert await states() == ["live", "building"]
    for table in ("documents", "chunks", "embeddings", "keyword_segments"):
        count = f"select count(*) from {table} where generation_id = {former.id}"  # noqa: S608
        left = await database.as_owner(count)
        assert left == 0, table


async def test_an_interrupted_drop_is_finished(
    store: Store, worker: Database, archiver: Database, database: FreshDatabase
) -> None:
    """The archiver deletes what an operator's drop has left."""
    await store.apply([document_write("a", YOUNG, ["x"])])
    former = await store.generation("alpha")
    await switch(worker, await add_generation(worker, store, "alpha"))
    await database.as_owner(f"update generations set state = 'dropping' where id = {former.id}")  # noqa: S608
    assert await expire(archiver) == {"generations": 1}
    assert [generation.state for generation in await store.generations("alpha")] == ["live"]


async def test_a_worker_can_drop_no_other_generation(
    store: Store, worker: Database, archiver: Database
) -> None:
    """A worker's role may neither drop the live generation, nor a young former one."""
    await store.apply([document_write("a", YOUNG, ["x"])])
    former = await store.generation("alpha")
    await switch(worker, await add_generation(worker, store, "alpha"))
    live = await store.generation("alpha")
    for generation in (former, live):
        async with archiver.scope(live.project_id, "*", generation.id) as connection:
            expired = await connection.fetchval(
                "select expire_generation($1, $2)", generation.id, NOW + timedelta(days=1)
            )
            assert not expired
            assert await connection.fetchval("select drop_documents(10)") == 0
            await connection.execute("select remove_generation($1)", generation.id)
            assert await connection.fetchval("select expire_tombstones($1, 10)", YOUNG) == 0
    assert [generation.state for generation in await store.generations("alpha")] == [
        "former",
        "live",
    ]


async def test_cached_vectors_without_a_chunk_expire(
    store: Store, archiver: Database, database: FreshDatabase
) -> None:
    """A vector is marked when no chunk has its text, and deleted if that stays so."""
    await store.apply([document_write("a", YOUNG, [f"text {number}" for number in range(200)])])
    assert await expire(archiver) == {}
    await store.apply([document_write("a", YOUNG + 2, [f"text {number}" for number in range(100)])])
    used = (
        "select count(*) from vector_cache where content_hash in (select content_hash from chunks)"
    )
    unchecked = "update retention_marks set vectors_checked_at = now() - interval '23 days'"
    await database.as_owner(unchecked)
    assert await expire(archiver) == {}
    marked = "select count(*) from vector_cache where unused_since is not null"
    assert await database.as_owner(marked) >= 95, "a check may take an unused vector for a used one"
    await database.as_owner(
        "update vector_cache set unused_since = now() where content_hash in ("
        "select content_hash from vector_cache v where not exists ("
        "select from chunks c where c.content_hash = v.content_hash))",
    )
    await store.apply([document_write("b", YOUNG + 4, ["text 150"])])
    await database.as_owner(
        "update vector_cache set unused_since = now() - interval '91 days'"
        " where unused_since is not null",
    )
    assert await expire(archiver) == {}, "the last check was just now"
    await database.as_owner(unchecked)
    assert (await expire(archiver))["vectors"] >= 95
    assert await database.as_owner(used) == 101
    assert await database.as_owner("select count(*) from vector_cache") <= 106
    assert await database.as_owner(f"{used} and unused_since is not null") == 0


async def test_idle_projects_are_not_visited(store: Store, archiver: Database) -> None:
    """A project without rows to expire is not among those that are found."""
    for project in ("alpha", "beta"):
        await store.apply([document_write("a", YOUNG, ["x"], project=project)])
    await expire(archiver)
    async with archiver.connection() as connection:
        found = await connection.fetch(
            "select * from find_expired($1, $1, $2, $1)", NOW - timedelta(days=30), OLD
        )
    assert found == []
