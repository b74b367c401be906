"""Cancellation of tasks at any point of a Redis command."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redis.asyncio import Redis

from events.server.connection import connect
from tests.support.waiting import within

COMMANDS = 200
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


async def test_more_commands_than_connections_end_or_are_cancelled(redis_url: str) -> None:
    """Commands that wait for a connection get one, also beside cancelled ones."""
    redis = connect(redis_url)

    async def echo(text: str) -> object:
        return await redis.echo(text)

    tasks = [asyncio.create_task(echo(str(n))) for n in range(COMMANDS)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    async with within(PATIENCE.total_seconds()):
        replies = await asyncio.gather(*tasks, return_exceptions=True)
    assert replies[1::2] == [str(n).encode() for n in range(1, COMMANDS, 2)]
    assert all(isinstance(reply, asyncio.CancelledError) for reply in replies[::2])
    await redis.aclose()
