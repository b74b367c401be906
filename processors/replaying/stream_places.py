"""Current ends of the streams of changes."""

from __future__ import annotations

from itertools import product
from typing import Any

from redis.asyncio import Redis

from events.connection import redis_errors
from events.names import Lane, Names, Position, Topic

__all__ = ["entry_id_before", "stream_ends"]


async def stream_ends(redis: Redis, names: Names) -> dict[str, str]:
    """Read the id of the last entry of each stream of changes, by key; '0-0' if it is empty.

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
    """Entry id that precedes every entry whose position may be ``position`` or later."""
    milliseconds = int(Position.from_number(position, 0).entry_id.partition("-")[0])
    return f"{max(0, milliseconds - 1)}-0"
