"""Fixtures of several integration tests: a worker's database, an archive, a Redis to break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from events.server.connection import connect
from store.archive import Archive
from store.postgres.pool import Database
from store.store import Store
from tests.support.archives import ArchiveAt
from tests.support.crashable_redis import CrashableRedis, redis_binaries
from tests.support.databases import Database as FreshDatabase
from tests.support.durable import Durable
from tests.support.writes import RECIPE, opened


@pytest.fixture
async def worker(database: FreshDatabase) -> AsyncIterator[Database]:
    """The fresh database, opened as an operator, who has a worker's rights and may replay."""
    async with opened(database.operator_url) as opened_database:
        yield opened_database


@pytest.fixture
async def store(worker: Database) -> Store:
    """Store of a worker."""
    return Store(worker, RECIPE)


@pytest.fixture
def kept(worker: Database, tmp_path: Path) -> ArchiveAt:
    """Empty archive, with access to its files."""
    return ArchiveAt.of(worker, tmp_path / "archive")


@pytest.fixture
def archive(kept: ArchiveAt) -> Archive:
    """The same archive, as a worker uses it."""
    return kept.archive


@pytest.fixture(params=redis_binaries(), ids=lambda path: path.parents[2].name)
async def own_redis(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[CrashableRedis]:
    """Empty server for one test; the test runs once per installed server version."""
    server = CrashableRedis(request.param, tmp_path_factory.mktemp("redis"))
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def own_client(own_redis: CrashableRedis) -> AsyncIterator[Redis]:
    """Client of ``own_redis``."""
    async with Redis.from_url(own_redis.url) as client:
        yield client


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """Connection to the run's Redis."""
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def durable(redis: Redis, worker: Database) -> Durable:
    """Publisher with an outbox, and access to outbox and streams."""
    return Durable.at(redis, worker)
