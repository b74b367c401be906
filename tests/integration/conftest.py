"""Fixtures of tests that break their Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from tests.support.crashable_redis import CrashableRedis, redis_binaries


@pytest.fixture(params=redis_binaries(), ids=lambda path: path.parents[2].name)
async def own_redis(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[CrashableRedis]:
    """A server of this test alone, empty; once per server binary that is here."""
    server = CrashableRedis(request.param, tmp_path_factory.mktemp("redis"))
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def own_client(own_redis: CrashableRedis) -> AsyncIterator[Redis]:
    """A client of ``own_redis``."""
    async with Redis.from_url(own_redis.url) as client:
        yield client
