"""Exclusive transaction of a switch, beside writers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from runtime.errors import Unavailable
from store.generations import switch as switching
from store.generations.catalog import Generation, begin
from store.generations.switch import exclusive, switch
from store.postgres.connection import WriteConflict
from store.postgres.locks import Lock
from store.postgres.pool import Database as WorkerDatabase
from store.store import Store
from tests.support.databases import Database
from tests.support.waiting import patience, within
from tests.support.writes import RECIPE, document_write, opened


@pytest.fixture
async def live(database: Database) -> AsyncIterator[tuple[WorkerDatabase, Generation, Generation]]:
    """Database with a live generation and one to switch to."""
    async with opened(database.operator_url) as worker:
        generation = await Store(worker, RECIPE).generation("alpha")
        async with worker.scope(generation.project_id) as connection:
            other = await begin(connection, generation.project_id, RECIPE, {})
        yield worker, generation, other


Stage = tuple[WorkerDatabase, Generation, Generation]


async def test_a_process_that_stops_inside_a_switch_lets_writers_go_on(
    live: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends a silent switch, so that writers continue and nothing is switched."""
    database, generation, other = live
    monkeypatch.setattr(switching, "IDLE_LIMIT_MS", round(patience(300)))
    store = Store(database, RECIPE)
    applied: list[str] = []

    async def stop_inside() -> None:
        async with exclusive(database, generation.project_id) as connection:
            await switch(connection, generation, other)
            async with within(10):
                results = await store.apply([document_write("a", 1, ["text"])])
            applied.extend(one.outcome for one in results)

    with pytest.raises(Unavailable):
        await stop_inside()
    assert applied == ["indexed"]
    assert (await store.generation("alpha")).id == generation.id


async def test_a_switch_gives_up_its_place_before_writers(
    live: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that waits for a writer gives up, and other writers continue."""
    database, generation, _ = live
    monkeypatch.setattr(switching, "LOCK_WAIT_MS", 100)
    async with database.scope(generation.project_id) as writer:
        await Lock.SWITCH.share(writer, generation.project_id)
        with pytest.raises(WriteConflict):
            async with exclusive(database, generation.project_id):
                pytest.fail("two hold the lock")
        async with database.scope(generation.project_id) as second, within(5):
            await Lock.SWITCH.share(second, generation.project_id)


async def test_a_switch_needs_both_generations_as_they_were(live: Stage) -> None:
    """A switch fails if one of its generations has been switched before."""
    database, generation, other = live
    async with exclusive(database, generation.project_id) as connection:
        await switch(connection, generation, other)
    with pytest.raises(WriteConflict, match=f"generation {generation.id} was switched"):
        async with exclusive(database, generation.project_id) as connection:
            await switch(connection, generation, other)
    assert (await Store(database, RECIPE).generation("alpha")).id == other.id
