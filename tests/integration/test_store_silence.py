"""The network forgets connections to Postgres: nobody waits for them, on either end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import asyncpg
import pytest

from runtime.errors import Unavailable
from runtime.settings import Settings
from store.database import Database
from tests.support.databases import Database as Fresh
from tests.support.proxy import Proxy, running_proxy
from tests.support.waiting import eventually

LONGEST_STATEMENT = timedelta(seconds=0.5)
CONNECTIONS = 4
SPACE = 7


@pytest.fixture
async def proxy(database: Fresh) -> AsyncIterator[Proxy]:
    async with running_proxy(database.worker_url) as proxy:
        yield proxy


@pytest.fixture
async def pool(proxy: Proxy) -> AsyncIterator[Database]:
    """All of its connections have been used, and are idle."""
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
    """The first to run into its timeout tells that the others may be dead too."""
    proxy.blackhole()
    proxy.heal()
    began = monotonic()
    with pytest.raises(Unavailable):
        await use(pool)
    for _ in range(CONNECTIONS):
        await use(pool)
    assert monotonic() - began < 2 * LONGEST_STATEMENT.total_seconds()


async def test_a_silent_transaction_gives_its_locks_back(proxy: Proxy, pool: Database) -> None:
    """Whoever is cut off in the middle of a write keeps nobody from writing for long."""
    with pytest.raises(Unavailable):
        await be_cut_off(proxy, pool)
    proxy.heal()
    await eventually(lambda: can_lock(pool), "the lock is free", timeout=10)


async def test_a_transaction_is_silent_for_less_than_a_lease(database: Fresh) -> None:
    """Also where statements may take long: a worker that is stopped would stop all others."""
    settings = Settings()
    pool = await Database.open(database.worker_url, statement_timeout=settings.statement_timeout)
    async with pool.connection() as connection:
        query = "SELECT current_setting('idle_in_transaction_session_timeout')::interval"
        assert await connection.fetchval(query) < settings.lease
    await pool.close()


async def test_a_connection_lost_between_two_statements_is_an_outage(
    database: Fresh, pool: Database
) -> None:
    """And no defect of the event in hand, whose attempts it would count against."""
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
