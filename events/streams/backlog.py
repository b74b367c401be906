"""Backlog of each stream, for ``status`` and for alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from events.names import ARCHIVER, GROUPS, Names, Topic
from events.server.connection import redis_errors
from events.streams.entries import entries_of, is_absent, order

__all__ = ["ARCHIVERS", "Backlog", "read_backlog"]

ARCHIVERS: dict[Topic, str] = {Topic.CHANGED_LIVE: ARCHIVER, Topic.CHANGED_BULK: ARCHIVER}
"""The change streams, for the backlog of the archiver."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Backlog of one stream for its group.

    ``length`` counts the entries kept, handled or not. ``pending`` are delivered and not yet
    acknowledged; ``lag`` are not yet delivered, or None if the server can't count them (Redis
    before 7, or after deletes). ``oldest_unacknowledged`` is the age of the oldest of both; it is
    None if there are no such entries.
    """

    topic: Topic
    partition: int
    length: int
    pending: int
    lag: int | None
    oldest_unacknowledged: timedelta | None
    dead_letters: int


@dataclass(frozen=True, slots=True)
class _Stream:
    topic: Topic
    partition: int
    group: str
    key: str
    dead_key: str


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Log position of a group; it is at the start before the group is created."""

    delivered: str = "0-0"
    pending: int = 0
    oldest_pending: str | None = None
    lag: int | None = None


async def read_backlog(
    redis: Redis, names: Names, groups: Mapping[Topic, str] = GROUPS
) -> list[Backlog]:
    """Read the backlog of every stream that has one of ``groups``, in two round trips.

    Raises:
        Unavailable: Redis can't be reached.
    """
    streams = [
        _Stream(
            topic, partition, group, names.stream(topic, partition), names.dead(topic, partition)
        )
        for topic, group in groups.items()
        for partition in range(names.partitions)
    ]
    with redis_errors():
        cursors = await _cursors(redis, streams)
        async with redis.pipeline(transaction=False) as pipeline:
            for stream, cursor in zip(streams, cursors, strict=True):
                pipeline.xlen(stream.key)
                pipeline.xlen(stream.dead_key)
                pipeline.xrange(stream.key, f"({cursor.delivered}", count=1)
            pipeline.time()
            *replies, now = await pipeline.execute()
    now_milliseconds = now[0] * 1000 + now[1] // 1000
    return [
        _backlog(stream, cursor, replies[3 * i : 3 * i + 3], now_milliseconds)
        for i, (stream, cursor) in enumerate(zip(streams, cursors, strict=True))
    ]


async def _cursors(redis: Redis, streams: Sequence[_Stream]) -> list[_Cursor]:
    async with redis.pipeline(transaction=False) as pipeline:
        for stream in streams:
            pipeline.xinfo_groups(stream.key)
            pipeline.xpending(stream.key, stream.group)
        replies = await pipeline.execute(raise_on_error=False)
    return [
        _cursor(stream.group, replies[2 * i], replies[2 * i + 1])
        for i, stream in enumerate(streams)
    ]


def _cursor(name: str, groups: Any, pending: Any) -> _Cursor:
    """Build the cursor; the reply is an error if the stream or the group does not exist."""
    if is_absent(groups) or is_absent(pending):
        return _Cursor()
    group: Mapping[str, Any] = next(item for item in groups if item["name"] == name.encode())
    return _Cursor(
        delivered=group["last-delivered-id"].decode(),
        pending=pending["pending"],
        oldest_pending=pending["min"].decode() if pending["min"] else None,
        lag=group.get("lag"),
    )


def _backlog(
    stream: _Stream, cursor: _Cursor, replies: Sequence[Any], now_milliseconds: int
) -> Backlog:
    length, dead_letters, following = replies
    undelivered = [entry.id for entry in entries_of(following)]
    waiting = [order(entry_id)[0] for entry_id in (cursor.oldest_pending, *undelivered) if entry_id]
    age = timedelta(milliseconds=max(0, now_milliseconds - min(waiting))) if waiting else None
    return Backlog(
        topic=stream.topic,
        partition=stream.partition,
        length=length,
        pending=cursor.pending,
        lag=cursor.lag if undelivered else 0,
        oldest_unacknowledged=age,
        dead_letters=dead_letters,
    )
