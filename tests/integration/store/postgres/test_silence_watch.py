"""Silent processes and networks: locks and waits end in time, on both ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import asyncpg
import pytest

from runtime.errors import Unavailable
from runtime.settings import Settings
from store.postgres import pool as databases
from store.postgres.pool import Database
from tests.support.databases import Database as Fresh
from tests.support.proxy import Fault, Proxy, Way, running_proxy
from tests.support.waiting import eventually, patience, within

LONGEST_STATEMENT = timedelta(seconds=0.5)
CONNECTIONS = 4
LONG = timedelta(seconds=2.5)
"""Several times the longest silence of the pool, which is twice its longest statement."""
SPACE = 7
CLOSE_MESSAGE = b"C\x00\x00\x00"
"""Start of the Close message of the Postgres protocol, up to its length."""


@pytest.fixture
async def proxy(database: Fresh) -> AsyncIterator[Proxy]:
    async with running_proxy(database.worker_url) as proxy:
        yield proxy


@pytest.fixture
async def pool(proxy: Proxy) -> AsyncIterator[Database]:
    """Pool whose connections have been used and are idle."""
    pool = await Database.open(proxy.url, statement_timeout=LONGEST_STATEMENT, max_size=CONNECTIONS)
    together = asyncio.Barrier(CONNECTIONS)
    await asyncio.gather(*(use(pool, together) for _ in range(CONNECTIONS)))
    yield pool
    await pool.close()


async def use(pool: Database, together: asyncio.Barrier | None = None) -> None:
    async with pool.scope(1) as connection:
        assert await connection.fetchval("SELECT 1") == 1
        if together is not None:
            await together.wait()


async def test_one_silent_connection_renews_them_all(proxy: Proxy, pool: Database) -> None:
    """One timeout renews all connections, because the others may be dead too."""
    proxy.blackhole()
    proxy.heal()
    began = monotonic()
    with pytest.raises(Unavailable):
        await use(pool)
    for _ in range(CONNECTIONS):
        await use(pool)
    assert monotonic() - began < patience(2 * LONGEST_STATEMENT.total_seconds())


async def test_a_cached_statement_cannot_be_closed(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Close message without an answer raises Unavailable, although the driver waits for ever."""
    monkeypatch.setattr(databases, "_CACHED_STATEMENTS", 1)
    pool = await Database.open(proxy.url, statement_timeout=LONGEST_STATEMENT)
    try:
        trap = proxy.trap(Way.TO_SERVER, CLOSE_MESSAGE, Fault.SWALLOW)
        async with within(10):
            with pytest.raises(Unavailable):
                await use(pool)
        assert trap.struck
        proxy.heal()
        await use(pool)
    finally:
        await pool.close()


async def test_a_silent_transaction_gives_its_locks_back(proxy: Proxy, pool: Database) -> None:
    """A transaction that is cut off from its client releases its locks."""
    with pytest.raises(Unavailable):
        await be_cut_off(proxy, pool)
    proxy.heal()
    await eventually(lambda: can_lock(pool), "the lock is free", timeout=10)


async def test_a_transaction_is_silent_for_less_than_a_lease(database: Fresh) -> None:
    """The idle limit of a transaction is shorter than a worker's lease."""
    settings = Settings()
    pool = await Database.open(database.worker_url, statement_timeout=settings.statement_timeout)
    async with pool.connection() as connection:
        query = "SELECT current_setting('idle_in_transaction_session_timeout')::interval"
        assert await connection.fetchval(query) < settings.lease
    await pool.close()


async def test_a_silent_statement_gives_its_locks_back(database: Fresh, pool: Database) -> None:
    """A session that stopped between Parse and Execute is ended, and its locks are released."""
    async with session(database) as stopped:
        await hold_lock(stopped)
        await stopped.prepare("SELECT 2")
        assert await activity(database, stopped) == ("active", "ClientRead")
        await eventually(lambda: can_wait_for_lock(pool), "the lock is free", timeout=10)
        await eventually(stopped.is_closed, "the session is ended")


async def test_a_long_statement_keeps_its_locks(database: Fresh, pool: Database) -> None:
    """A long statement and a long COPY keep their locks, because they are not silent."""
    async with session(database) as busy:
        await hold_lock(busy)
        waiting = asyncio.create_task(
            eventually(lambda: can_wait_for_lock(pool), "the lock is free", timeout=20)
        )
        await busy.execute("SELECT pg_sleep($1)", LONG.total_seconds())
        await busy.execute("CREATE TEMP TABLE slow (row text)")
        await busy.copy_to_table("slow", source=slow_rows())
        assert not waiting.done()
        await busy.execute("COMMIT")
        await waiting


async def test_a_foreign_session_is_left_alone(database: Fresh, pool: Database) -> None:
    """A silent session of another application is not ended."""
    async with session(database) as stopped, session(database, "another") as foreign:
        await hold_lock(foreign, SPACE + 1)
        await foreign.prepare("SELECT 2")
        await hold_lock(stopped)
        await stopped.prepare("SELECT 2")
        assert not await can_wait_for_lock(pool, SPACE + 1)
        await eventually(lambda: can_wait_for_lock(pool), "the lock is free", timeout=10)
        assert not await can_wait_for_lock(pool, SPACE + 1)
        await foreign.execute("COMMIT")


@asynccontextmanager
async def session(database: Fresh, application: str = "headrace") -> AsyncIterator[Any]:
    """Connection outside any pool."""
    connection = await asyncpg.connect(
        database.worker_url, server_settings={"application_name": application}
    )
    yield connection
    await connection.close()


async def slow_rows() -> AsyncIterator[bytes]:
    """Rows of a COPY that takes ``LONG``."""
    began = monotonic()
    while monotonic() - began < LONG.total_seconds():
        yield b"row\n"
        await asyncio.sleep(0.05)


async def hold_lock(connection: asyncpg.Connection, space: int = SPACE) -> None:
    await connection.execute("BEGIN")
    await connection.execute("SELECT pg_advisory_xact_lock($1, 1)", space)


async def activity(database: Fresh, connection: asyncpg.Connection) -> tuple[str, str]:
    """State and wait event of the session."""
    owner = await asyncpg.connect(database.owner_url)
    query = "SELECT state, wait_event FROM pg_stat_activity WHERE pid = $1"
    row = await owner.fetchrow(query, connection.get_server_pid())
    await owner.close()
    return row["state"], row["wait_event"]


async def can_wait_for_lock(pool: Database, space: int = SPACE) -> bool:
    """True if the lock is free within the time of a statement."""
    with suppress(Unavailable):
        async with pool.scope(1) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1, 1)", space)
            return True
    return False


async def test_a_connection_lost_between_two_statements_is_an_outage(
    database: Fresh, pool: Database
) -> None:
    """A connection lost between two statements raises Unavailable."""
    with pytest.raises(Unavailable):
        await be_ended(database, pool)
    await use(pool)


async def be_ended(database: Fresh, pool: Database) -> None:
    async with pool.connection() as connection:
        pid = connection.get_server_pid()
        owner = await asyncpg.connect(database.owner_url)
        await owner.execute("SELECT pg_terminate_backend($1)", pid)
        await owner.close()
        await eventually(lambda: is_lost(connection), "the loss is seen")
        await connection.execute("SELECT 1")


def is_lost(connection: asyncpg.Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


async def be_cut_off(proxy: Proxy, pool: Database) -> None:
    async with pool.scope(1) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, 1)", SPACE)
        proxy.blackhole()
        await connection.execute("SELECT 1")


async def can_lock(pool: Database) -> bool:
    with suppress(Unavailable):
        async with pool.scope(1) as connection:
            free = await connection.fetchval("SELECT pg_try_advisory_xact_lock($1, 1)", SPACE)
            return bool(free)
    return False
