"""Backlog of each stream, for ``status`` and for alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from events.names import ARCHIVER, GROUPS, Names, Topic
from events.server.connection import redis_errors
from events.streams.entries import entries_of, order
from events.streams.groups import Progress, read_progress

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
        groups_progress = await read_progress(
            redis, [(stream.key, stream.group) for stream in streams]
        )
        async with redis.pipeline(transaction=False) as pipeline:
            for stream, progress in zip(streams, groups_progress, strict=True):
                pipeline.xlen(stream.key)
                pipeline.xlen(stream.dead_key)
                pipeline.xrange(stream.key, f"({progress.delivered}", count=1)
            pipeline.time()
            *replies, now = await pipeline.execute()
    now_milliseconds = now[0] * 1000 + now[1] // 1000
    return [
        _backlog(stream, progress, replies[3 * i : 3 * i + 3], now_milliseconds)
        for i, (stream, progress) in enumerate(zip(streams, groups_progress, strict=True))
    ]


def _backlog(
    stream: _Stream, progress: Progress, replies: Sequence[Any], now_milliseconds: int
) -> Backlog:
    length, dead_letters, following = replies
    undelivered = [entry.id for entry in entries_of(following)]
    waiting = [
        order(entry_id)[0] for entry_id in (progress.oldest_pending, *undelivered) if entry_id
    ]
    age = timedelta(milliseconds=max(0, now_milliseconds - min(waiting))) if waiting else None
    return Backlog(
        topic=stream.topic,
        partition=stream.partition,
        length=length,
        pending=progress.pending,
        lag=progress.lag if undelivered else 0,
        oldest_unacknowledged=age,
        dead_letters=dead_letters,
    )
