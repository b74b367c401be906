"""Advisory locks: alone, shared, held outside of a transaction, and lost with the connection."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from runtime.errors import Unavailable
from store.postgres.locks import HeldLock, Lock, replay_lock
from store.postgres.pool import Database
from tests.support.databases import Database as FreshDatabase
from tests.support.waiting import eventually, patience

KEY = 7


async def test_a_lock_of_a_transaction_ends_with_it(worker: Database) -> None:
    """Until then no other transaction gets it, except with another key or in another space."""
    async with worker.connection() as first, worker.connection() as second:
        async with first.transaction(), second.transaction():
            assert await Lock.MAINTENANCE.try_acquire(first, KEY)
            assert not await Lock.MAINTENANCE.try_acquire(second, KEY)
            assert await Lock.MAINTENANCE.try_acquire(second, KEY + 1)
            assert await Lock.COMPACTION.try_acquire(second, KEY)
        async with second.transaction():
            assert await Lock.MAINTENANCE.try_acquire(second, KEY)


async def test_a_shared_lock_excludes_only_those_who_want_it_alone(worker: Database) -> None:
    """Writers do not wait for each other, but a switch waits for them."""
    async with worker.connection() as first, worker.connection() as second:
        async with first.transaction(), second.transaction():
            await Lock.SWITCH.share(first, KEY)
            await Lock.SWITCH.share(second, KEY)
        async with first.transaction(), second.transaction():
            await Lock.SWITCH.share(first, KEY)
            assert not await Lock.SWITCH.try_acquire(second, KEY)


async def test_a_held_lock_is_released_after_an_error(worker: Database) -> None:
    """And others see it as long as it is held."""
    async with worker.connection() as first, worker.connection() as second:
        with pytest.raises(ZeroDivisionError):
            await _fail_with_lock(first, second)
        assert not await Lock.COMPACTION.is_held(second, KEY)


async def _fail_with_lock(first: asyncpg.Connection, second: asyncpg.Connection) -> None:
    async with Lock.COMPACTION.holding(first, KEY) as is_held:
        assert is_held
        async with Lock.COMPACTION.holding(second, KEY) as is_held_twice:
            assert not is_held_twice
        assert await Lock.COMPACTION.is_held(second, KEY), "only its holder releases it"
        raise ZeroDivisionError


async def test_one_who_is_cancelled_keeps_no_lock(worker: Database) -> None:
    """The server may have granted the lock before it gets the cancellation."""

    async def hold(connection: asyncpg.Connection) -> None:
        async with Lock.CONTEXTS.holding(connection, KEY):
            pass

    async with worker.connection() as first, worker.connection() as second:
        await hold(first)  # the statement is prepared from now on
        for _ in range(10):
            holding = asyncio.create_task(hold(first))
            await asyncio.sleep(0)
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            assert not await Lock.CONTEXTS.is_held(second, KEY)


async def test_one_who_waits_gets_the_lock_next(worker: Database) -> None:
    """It polls, so that no session waits in Postgres."""

    async def wait_for_it() -> bool:
        async with (
            worker.connection() as connection,
            Lock.VECTOR_INDEX.holding(connection, KEY, wait=True) as is_held,
        ):
            return is_held

    async with worker.connection() as first, Lock.VECTOR_INDEX.holding(first, KEY):
        waiting = asyncio.create_task(wait_for_it())
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
    assert await asyncio.wait_for(waiting, patience(10))


async def test_a_lock_is_lost_with_its_connection(
    worker: Database, database: FreshDatabase
) -> None:
    """Its holder notices that before it goes on, and another process can take it."""
    with pytest.raises(Unavailable, match="the replay of notes lost its lock"):
        await _lose_lock(worker, database)
    async with replay_lock(worker, "notes", KEY) as lock:
        lock.check()


async def _lose_lock(worker: Database, database: FreshDatabase) -> None:
    async with replay_lock(worker, "notes", KEY) as lock:
        await lock.prove()
        await _end_holder(database)
        await eventually(lambda: _is_lost(lock), "the loss is noticed")
        await lock.prove()


async def _end_holder(database: FreshDatabase) -> None:
    owner = await asyncpg.connect(database.owner_url)
    query = "select pg_terminate_backend(pid) from pg_locks where classid = $1 and objid = $2"
    assert await owner.fetchval(query, Lock.REPLAY, KEY)
    await owner.close()


def _is_lost(lock: HeldLock) -> bool:
    try:
        lock.check()
    except Unavailable:
        return True
    return False
