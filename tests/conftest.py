"""Real servers for the tests, started once per run and shared.

Fixtures for tests: ``redis_url`` (flushed) and ``database`` (fresh and migrated). The servers
themselves (``postgres_server``, ``redis_server``) live for the whole run and end with it, also when
it is killed.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from tests.support.databases import (
    TEMPLATE,
    Database,
    create_database,
    fresh_database,
    tell_apart,
)


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the archive of each test apart from every other, that of the user too."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def servers_home() -> Iterator[Path]:
    """A short path, so that the unix socket fits."""
    home = Path(tempfile.mkdtemp(prefix="hr-"))
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def postgres_server(servers_home: Path) -> Iterator[EmbeddedPostgres]:
    """The run's Postgres; prefer ``database``, unless a test needs the server itself."""
    server = EmbeddedPostgres(servers_home, shared_buffers_mb=128)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    """Name of the migrated database that ``database`` clones."""
    from store.schema import upgrade

    asyncio.run(create_database(postgres_server, TEMPLATE))
    asyncio.run(upgrade(postgres_server.urls(TEMPLATE).owner))
    asyncio.run(tell_apart(postgres_server, TEMPLATE))
    return TEMPLATE


@pytest.fixture
async def database(
    postgres_server: EmbeddedPostgres,
    template_database: str,
) -> AsyncIterator[Database]:
    """A fresh, migrated database with ``owner_url`` and ``worker_url``; dropped after the test."""
    async with fresh_database(postgres_server) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def redis_server(servers_home: Path) -> Iterator[str]:
    """URL of the run's Redis; prefer ``redis_url``, which is empty at the start of a test."""
    server = EmbeddedRedis(servers_home)
    yield asyncio.run(server.start())
    asyncio.run(server.stop())


@pytest.fixture
async def redis_url(redis_server: str) -> str:
    """URL of a real Redis with nothing in it."""
    client = Redis.from_url(redis_server)
    await client.flushall()
    await client.aclose()
    return redis_server
