"""Differences between generations, in whole or since a moment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from store.generations.catalog import Generation
from store.generations.document_positions import DocumentPositions
from store.postgres.pool import EVERY_AGENT, Database
from store.store import Store
from tests.support.writes import add_generation, document_write

BEGIN = "update documents set position = position + 10 where generation_id = $1 and uri = $2"


class Stage:
    """Live generation with three documents, and an empty generation."""

    def __init__(self, worker: Database, live: Generation, other: Generation) -> None:
        self.worker = worker
        self.document_positions = DocumentPositions(worker)
        self.live = live
        self.other = other

    async def newer(self, since: int | None = None) -> Sequence[tuple[str, int]]:
        """Uri and position of the documents that the empty generation lacks."""
        found = await self.document_positions.newer(self.live, self.other, since)
        return [(one.uri, one.position) for one in found]

    async def moment(self) -> int:
        """Current moment of the project."""
        return await self.document_positions.moment(self.live.project_id)


@pytest.fixture
async def stage(worker: Database, store: Store) -> Stage:
    """Documents a, b and c at positions 1, 2 and 3."""
    writes = [document_write(uri, number) for number, uri in enumerate("abc", 1)]
    await store.apply(writes)
    other = await add_generation(worker, store, "alpha")
    return Stage(worker, await store.generation("alpha"), other)


async def test_only_what_was_written_since_is_compared(stage: Stage, store: Store) -> None:
    """Only documents written since the moment are compared."""
    assert await stage.newer() == [("a", 1), ("b", 2), ("c", 3)]
    moment = await stage.moment()
    assert await stage.newer(moment) == []
    await store.apply([document_write("b", 7), document_write("d", 8)])
    assert await stage.newer(moment) == [("b", 7), ("d", 8)]
    await store.rebuild(stage.other, [document_write("b", 7)])
    assert await stage.newer(moment) == [("d", 8)]


async def test_a_writer_that_was_at_work_is_not_overlooked(stage: Stage, store: Store) -> None:
    """A transaction that began before the comparison is included."""
    place = stage.live.project_id, EVERY_AGENT, stage.live.id
    async with stage.worker.scope(*place) as slow:
        await slow.execute(BEGIN, stage.live.id, "a")
        async with slow.transaction():
            await slow.execute(BEGIN, stage.live.id, "c")
        await store.apply([document_write("b", 7)])
        moment = await stage.moment()
        assert await stage.newer() == [("a", 1), ("c", 3), ("b", 7)]
    since = await stage.newer(moment)
    assert {("a", 11), ("c", 13)} <= set(since)


async def test_what_was_only_held_is_not_taken_for_changed(stage: Stage) -> None:
    """A document that was only locked does not count as written."""
    moment = await stage.moment()
    async with stage.worker.scope(stage.live.project_id, EVERY_AGENT, stage.live.id) as held:
        await held.execute(
            "select from documents where generation_id = $1 for update", stage.live.id
        )
        await held.execute("select pg_current_xact_id()")
    assert await stage.newer(moment) == []
