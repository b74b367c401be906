"""How far the streams of changes reach."""

from __future__ import annotations

from itertools import product
from typing import Any

from redis.asyncio import Redis

from events.connection import redis_errors
from events.names import Lane, Names, Position, Topic

__all__ = ["entry_id_before", "stream_ends"]


async def stream_ends(redis: Redis, names: Names) -> dict[str, str]:
    """Id of the last entry of every stream of changes, by its key; '0-0' where there is none.

    Raises:
        Unavailable: Redis can't be reached.
    """
    ends: dict[str, str] = {}
    with redis_errors():
        for lane, partition in product(Lane, range(names.partitions)):
            key = names.stream(Topic.of_lane(lane), partition)
            last: Any = await redis.xrevrange(key, count=1)
            ends[key] = last[0][0].decode() if last else "0-0"
    return ends


def entry_id_before(position: int) -> str:
    """An id after which every entry follows that may be at a position or later."""
    milliseconds = int(Position.from_number(position, 0).entry_id.partition("-")[0])
    return f"{max(0, milliseconds - 1)}-0"
