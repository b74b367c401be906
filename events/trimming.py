"""Questions are no part of the log: once answered, their entries are let go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from events.connection import redis_errors
from events.entries import order
from events.names import GROUPS, Names, Topic

__all__ = ["trim_queries"]


async def trim_queries(redis: Redis, names: Names, keep: timedelta = timedelta(minutes=10)) -> int:
    """Drop queries older than ``keep`` that are answered; how many went.

    Trims by id, below the oldest pending query and below what the group has read: a trim by length
    would drop entries that are still pending.

    Raises:
        Unavailable: Redis can't be reached.
    """
    trimmed = 0
    for partition in range(names.partitions):
        key = names.stream(Topic.QUERY, partition)
        with redis_errors():
            floor = await _floor(redis, key, keep)
            if floor is not None:
                trimmed += await redis.xtrim(key, minid=floor, approximate=True)
    return trimmed


async def _floor(redis: Redis, key: str, keep: timedelta) -> str | None:
    """The id below which nothing is needed; None when the group can't be asked."""
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.xinfo_groups(key)
        pipeline.xpending(key, GROUPS[Topic.QUERY])
        pipeline.time()
        groups, pending, now = await pipeline.execute(raise_on_error=False)
    if isinstance(groups, Exception) or isinstance(pending, Exception):
        return None
    seconds, microseconds = now
    oldest_kept = seconds * 1000 + microseconds // 1000 - int(keep.total_seconds() * 1000)
    ids = [f"{max(oldest_kept, 0)}-0", *_delivered(groups)]
    if pending["min"]:
        ids.append(pending["min"].decode())
    return min(ids, key=order)


def _delivered(groups: list[dict[str, Any]]) -> list[str]:
    return [group["last-delivered-id"].decode() for group in groups]
