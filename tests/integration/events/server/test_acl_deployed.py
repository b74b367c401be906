"""Deployed Redis, as docker-compose.yml starts it: passwords, and users after a restart."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from events.server.acl import Role, save_users
from tests.support.crashable_redis import redis_binaries
from tests.support.deployment import COMPOSE
from tests.support.doors import open_doors
from tests.support.waiting import eventually


@contextmanager
def process(directory: Path, binary: Path, password: str) -> Iterator[None]:
    """Run the deployed command with another directory and program."""
    shell, flag, script = COMPOSE["services"]["redis"]["command"]
    server = f"{binary} --port 0 --unixsocket {directory}/redis.sock --dir {directory}"
    for deployed, here in {
        "$$": "$",
        "/data": str(directory),
        "docker-entrypoint.sh redis-server": server,
    }.items():
        assert deployed in script
        script = script.replace(deployed, here)
    running = subprocess.Popen(
        [shell, flag, script],
        env={**os.environ, "REDISCLI_AUTH": password},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        running.kill()
        running.wait()


@asynccontextmanager
async def deployed(directory: Path, binary: Path, password: str) -> AsyncIterator[str]:
    """URL of the server as its owner, once it answers."""
    url = f"unix://default:{password}@{directory}/redis.sock"
    with process(directory, binary, password):
        await eventually(lambda: _answers(url), "Redis answers its owner")
        yield url


async def _answers(url: str) -> bool:
    async with Redis.from_url(url) as client:
        try:
            await client.ping()
        except RedisError:
            return False
    return True


@pytest.mark.parametrize("binary", redis_binaries(), ids=lambda path: path.parents[2].name)
async def test_users_outlive_a_restart(tmp_path: Path, binary: Path) -> None:
    """Users outlive a kill and a new owner's password."""
    async with deployed(tmp_path, binary, "first-password") as url:
        assert not await _answers(url.replace("default:first-password@", ""))
        doors = await open_doors(url)
        async with Redis.from_url(url) as owner:
            assert await save_users(owner)
    async with deployed(tmp_path, binary, "second-password"):
        assert not await _answers(url)
        for role in Role:
            async with Redis.from_url(doors.url(role)) as client:
                await client.ping()
                with pytest.raises(NoPermissionError):
                    await client.flushall()
