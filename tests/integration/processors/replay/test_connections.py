"""Replays with broken database connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from processors.replay import builder, catch_up
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import Unavailable
from store.generations.switch import exclusive
from store.postgres.connection import WriteConflict
from store.postgres.locks import Lock
from store.postgres.pool import Database as WorkerDatabase
from tests.support.databases import Database
from tests.support.replays import (
    HASHING,
    damage_at_once,
    generation_states,
    notes,
    replay,
    struck,
    tools,
)
from tests.support.running import headrace

CUT_OFF = f"""
    select pg_terminate_backend(pid, 60_000) from pg_locks
    where locktype = 'advisory' and classid = {Lock.REPLAY} and $1 > 0
        and database = (select oid from pg_database where datname = current_database())
"""  # noqa: S608 - a number of our own
"""Ends the session and waits for its end, so that the next use of the connection fails."""


@pytest.fixture
async def opened(redis_url: str, database: Database) -> AsyncIterator[OperatorTools]:
    """Tools of replays, with the notes in the project ``docs``."""
    async with (
        headrace(redis_url, database, model=HASHING) as worker,
        tools(redis_url, database) as opened,
    ):
        await notes(worker)
        yield opened


@pytest.mark.parametrize("error", [TimeoutError(), WriteConflict("?"), Unavailable("?")], ids=repr)
async def test_a_switch_whose_answer_is_lost_is_done(
    opened: OperatorTools, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A switch whose commit succeeded counts as done although its reply was lost."""

    @asynccontextmanager
    async def deaf(database: WorkerDatabase, project_id: int) -> AsyncIterator[asyncpg.Connection]:
        async with exclusive(database, project_id) as connection:
            yield connection
        raise error

    monkeypatch.setattr(catch_up, "exclusive", deaf)
    assert (await replay(opened)).switched
    assert await generation_states(opened) == ["former", "live"]


async def test_a_replay_that_lost_its_lock_does_not_switch(
    opened: OperatorTools, database: Database
) -> None:
    """A replay without its lock ends before the switch, because another one may be running."""
    with (
        struck("replay.verifying", lambda: damage_at_once(database, CUT_OFF)),
        pytest.raises(Unavailable, match="lost its lock"),
    ):
        await replay(opened)
    assert await generation_states(opened) == ["live", "building"]


async def test_a_replay_that_lost_its_lock_builds_no_more(
    opened: OperatorTools, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay without its lock stops at the next batch."""
    monkeypatch.setattr(builder, "BATCH_DOCUMENTS", 1)
    monkeypatch.setattr(builder, "BATCHES_AT_ONCE", 1)
    with (
        struck("replay.building", lambda: damage_at_once(database, CUT_OFF)),
        pytest.raises(Unavailable, match="lost its lock"),
    ):
        await replay(opened)
    _, half = await opened.store.generations("docs")
    assert len([each async for each in opened.document_positions.of(half)]) == 1
