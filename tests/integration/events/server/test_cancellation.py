"""Cancellation of tasks at any point of a Redis command."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redis.asyncio import Redis

from events.server.connection import connect

STEPS = 40
TRIES = 5
PATIENCE = timedelta(seconds=10)


async def talk_for_ever(redis: Redis) -> None:
    while True:
        await redis.echo("x" * 4096)


async def test_no_cancellation_is_lost(redis_url: str) -> None:
    """A task that is cancelled at any step of a command ends."""
    redis = connect(redis_url)
    for step in [step for step in range(STEPS) for _ in range(TRIES)]:
        task = asyncio.create_task(talk_for_ever(redis))
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE.total_seconds())
        assert task.cancelled(), f"went on after {step} steps"
    await redis.aclose()


async def test_a_cancelled_command_leaves_no_reply_for_the_next(redis_url: str) -> None:
    """No later command reads the reply of a cancelled one."""
    redis = connect(redis_url)
    for step in range(STEPS):
        task = asyncio.create_task(talk_for_ever(redis))
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        assert await redis.echo(str(step)) == str(step).encode()
        await asyncio.wait([task], timeout=PATIENCE.total_seconds())
    await redis.aclose()
