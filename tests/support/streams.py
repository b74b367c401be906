"""Typed reading of streams in tests, and an empty Redis."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from events.streams.entries import Entry, entries_of

__all__ = ["emptied", "read_group", "read_stream"]


async def emptied(redis_url: str) -> str:
    """Empty the server; returns its URL."""
    async with Redis.from_url(redis_url) as client:
        await client.flushall()
    return redis_url


async def read_stream(redis: Redis, key: str) -> list[Entry]:
    """Every entry of a stream, oldest first."""
    return entries_of(await redis.xrange(key))


async def read_group(redis: Redis, key: str, group: str, count: int = 1) -> list[Entry]:
    """Next entries of a group for the consumer ``test``; waits for the first."""
    reply: Any = None
    while not reply:
        reply = await redis.xreadgroup(group, "test", {key: ">"}, count=count, block=1000)
    return entries_of(reply[0][1])
