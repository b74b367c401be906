"""Which published changes still wait in the log, and whether anything there moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from redis.asyncio import Redis

from events.connection import redis_errors
from events.entries import is_absent, order
from events.names import GROUPS, Lane, Names, Position, Topic
from events.scripts import Present
from runtime.errors import ConfigurationError

__all__ = ["present_changes", "read_cursors"]

_AT_ONCE = 1000


async def present_changes(redis: Redis, names: Names, tokens: Iterable[str]) -> set[str]:
    """Those of some changes that wait in their streams.

    A publisher that may not look at entries is told by what the workers have read: there a change
    that vanished counts as present until they have read further.

    Raises:
        Unavailable: Redis can't be reached.
        ConfigurationError: the user may not even see how far the workers have read.
    """
    by_stream: defaultdict[tuple[Lane, int], list[Position]] = defaultdict(list)
    for token in tokens:
        position = Position.from_token(token)
        by_stream[position.lane, position.partition].append(position)
    found = set[str]()
    for (lane, partition), positions in by_stream.items():
        topic = Topic.of_lane(lane)
        key = names.stream(topic, partition)
        for start in range(0, len(positions), _AT_ONCE):
            some = positions[start : start + _AT_ONCE]
            present = await _present(redis, key, GROUPS[topic], [one.entry_id for one in some])
            found |= {one.token for one, there in zip(some, present, strict=True) if there}
    return found


async def _present(redis: Redis, key: str, group: str, entry_ids: Sequence[str]) -> list[bool]:
    try:
        with redis_errors():
            return await Present(redis)(key, entry_ids)
    except ConfigurationError:
        return await _present_by_cursor(redis, key, group, entry_ids)


async def _present_by_cursor(
    redis: Redis, key: str, group: str, entry_ids: Sequence[str]
) -> list[bool]:
    """What is delivered and not pending is done with; what is not delivered should still come."""
    with redis_errors():
        async with redis.pipeline(transaction=False) as pipeline:
            pipeline.xlen(key)
            pipeline.xinfo_groups(key)
            for entry_id in entry_ids:
                pipeline.xpending_range(key, group, entry_id, entry_id, 1)
            length, groups, *pending = await pipeline.execute(raise_on_error=False)
        found: list[Any] = [] if is_absent(groups) else groups
        if is_absent(length) or not length:
            return [False] * len(entry_ids)
    known = next((one for one in found if one["name"] == group.encode()), None)
    if known is None:
        return [True] * len(entry_ids)
    delivered = order(known["last-delivered-id"].decode())
    all_delivered = known.get("lag") == 0
    return [
        bool(rows) if all_delivered or order(entry_id) <= delivered else True
        for entry_id, rows in zip(entry_ids, pending, strict=True)
    ]


async def read_cursors(redis: Redis, names: Names) -> tuple[object, ...]:
    """How far workers have read and acknowledged the changes: it differs when something moved.

    Raises:
        Unavailable: Redis can't be reached.
        ConfigurationError: the user may not see it.
    """
    topics = [Topic.of_lane(lane) for lane in Lane]
    with redis_errors():
        async with redis.pipeline(transaction=False) as pipeline:
            for topic, partition in product(topics, range(names.partitions)):
                key = names.stream(topic, partition)
                pipeline.xinfo_groups(key)
                pipeline.xpending(key, GROUPS[topic])
            replies = await pipeline.execute(raise_on_error=False)
        return tuple("" if is_absent(reply) else repr(reply) for reply in replies)
