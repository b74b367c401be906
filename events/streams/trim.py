"""Trimming of streams: answered questions, embedded documents, changes handled by all groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

from redis.asyncio import Redis

from events.names import ARCHIVER, GROUPS, Lane, Names, Topic, change_streams
from events.server.connection import redis_errors
from events.streams.entries import following, order
from events.streams.groups import read_groups

__all__ = [
    "changes_needed_from",
    "oldest_change",
    "read_trimmed",
    "trim_changes",
    "trim_chunked",
    "trim_handled",
    "trim_queries",
]


async def trim_queries(
    redis: Redis,
    names: Names,
    keep: timedelta = timedelta(minutes=10),
    topic: Topic = Topic.QUERY,
) -> int:
    """Drop answered queries, or kept judgements, that are older than ``keep``; return their number.

    Trims by id, below the oldest pending query and below the group's cursor: a trim by length would
    drop entries that are still pending.

    Raises:
        Unavailable: Redis can't be reached.
    """
    keys = [names.stream(topic, partition) for partition in range(names.partitions)]
    trimmed = 0
    for key in await _with_old_entries(redis, keys, keep):
        with redis_errors():
            trimmed += await _trim(redis, key, {GROUPS[topic]}, keep)
    return trimmed


async def trim_chunked(redis: Redis, names: Names) -> int:
    """Drop documents whose vectors are made; return their number.

    Raises:
        Unavailable: Redis can't be reached.
    """
    groups = {
        names.stream(topic, partition): GROUPS[topic]
        for topic, partition in product(map(Topic.of_chunked, Lane), range(names.partitions))
    }
    trimmed = 0
    for key in await _with_old_entries(redis, list(groups), timedelta()):
        with redis_errors():
            trimmed += await _trim(redis, key, {groups[key]}, timedelta())
    return trimmed


async def trim_changes(redis: Redis, names: Names, keep: timedelta) -> int:
    """Drop changes older than ``keep`` that every group has acknowledged; return their number.

    A stream is not trimmed if it lacks the group of the indexer or of the archiver. Additional
    groups also retain the changes that they have not handled.

    Raises:
        Unavailable: Redis can't be reached.
    """
    streams = {names.stream(*stream): stream for stream in change_streams(names)}
    trimmed = 0
    for key in await _with_old_entries(redis, list(streams), keep):
        topic, partition = streams[key]
        with redis_errors():
            count = await _trim(redis, key, {GROUPS[topic], ARCHIVER}, keep)
            if count:
                await redis.hincrby(names.trimmed(partition), topic.lane, count)
        trimmed += count
    return trimmed


async def trim_handled(redis: Redis, names: Names, topic: Topic, partition: int) -> int:
    """Drop every entry that all groups have acknowledged, however young; return how many are left.

    Raises:
        Unavailable: Redis can't be reached.
    """
    key = names.stream(topic, partition)
    expected = {GROUPS[topic], ARCHIVER} if topic.carries_changes else {GROUPS[topic]}
    with redis_errors():
        floor = await _handled_below(redis, key, expected)
        if floor is not None:
            count: int = await redis.xtrim(key, minid=floor, approximate=False)
            if count and topic.carries_changes:
                await redis.hincrby(names.trimmed(partition), topic.lane, count)
        left: int = await redis.xlen(key)
    return left


async def read_trimmed(redis: Redis, names: Names) -> dict[tuple[Lane, int], int]:
    """Return how many changes were trimmed from each stream since Redis was last empty.

    Raises:
        Unavailable: Redis can't be reached.
    """
    trimmed: dict[tuple[Lane, int], int] = {}
    for partition in range(names.partitions):
        with redis_errors():
            counts: Any = await redis.hgetall(names.trimmed(partition))
        for lane in Lane:
            trimmed[lane, partition] = int(counts.get(lane.encode(), 0))
    return trimmed


async def changes_needed_from(redis: Redis, names: Names, keep: timedelta) -> int | None:
    """Return the time (ms since 1970) before which no change is needed from Redis; None if unknown.

    Raises:
        Unavailable: Redis can't be reached.
    """
    floors = []
    for topic, partition in change_streams(names):
        key = names.stream(topic, partition)
        with redis_errors():
            floors.append(
                await _floor(redis, key, {GROUPS[topic], ARCHIVER}, keep, at_end_free=True)
            )
    present = [floor for floor in floors if floor is not None]
    return min(order(floor)[0] for floor in present) if len(present) == len(floors) else None


async def oldest_change(redis: Redis, names: Names) -> int | None:
    """Return the time (ms since 1970) of the oldest change in the streams; None if they are empty.

    Streams are trimmed in blocks, so a few changes stay for longer than they are needed.

    Raises:
        Unavailable: Redis can't be reached.
    """
    times = []
    for topic, partition in change_streams(names):
        with redis_errors():
            first: Any = await redis.xrange(names.stream(topic, partition), count=1)
        times += [order(entry_id.decode())[0] for entry_id, _ in first]
    return min(times, default=None)


async def _with_old_entries(redis: Redis, keys: Sequence[str], keep: timedelta) -> list[str]:
    """Return the streams whose oldest entry is older than ``keep``, in one round trip."""
    with redis_errors():
        async with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.xrange(key, count=1)
            pipeline.time()
            *oldest, now = await pipeline.execute()
    before = _milliseconds(now) - int(keep.total_seconds() * 1000)
    return [
        key
        for key, entries in zip(keys, oldest, strict=True)
        if entries and order(entries[0][0].decode())[0] <= before
    ]


def _milliseconds(time: tuple[int, int]) -> int:
    seconds, microseconds = time
    return int(seconds) * 1000 + int(microseconds) // 1000


async def _trim(redis: Redis, key: str, expected: Collection[str], keep: timedelta) -> int:
    """Drop the entries below the floor; return their number."""
    floor = await _floor(redis, key, expected, keep)
    if floor is None:
        return 0
    count: int = await redis.xtrim(key, minid=floor, approximate=True)
    return count


async def _floor(
    redis: Redis, key: str, expected: Collection[str], keep: timedelta, *, at_end_free: bool = False
) -> str | None:
    """Return the id below which nothing is needed; None if an expected group can't be read.

    ``at_end_free``: a group that has read to the end retains nothing.
    """
    groups = await read_groups(redis, key)
    if not groups.keys() >= set(expected):
        return None
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.xrevrange(key, count=1)
        pipeline.time()
        last, now = await pipeline.execute()
    end = last[0][0].decode() if last else "0-0"
    oldest_kept = _milliseconds(now) - int(keep.total_seconds() * 1000)
    ids = [group.oldest_pending for group in groups.values() if group.oldest_pending]
    delivered = [group.delivered for group in groups.values()]
    ids += [cursor for cursor in delivered if not at_end_free or order(cursor) < order(end)]
    return min((f"{max(oldest_kept, 0)}-0", *ids), key=order)


async def _handled_below(redis: Redis, key: str, expected: Collection[str]) -> str | None:
    """Return the id below which all groups have handled everything; None as for ``_floor``."""
    groups = await read_groups(redis, key)
    if not groups.keys() >= set(expected):
        return None
    ids = [group.oldest_pending or following(group.delivered) for group in groups.values()]
    return min(ids, key=order)
