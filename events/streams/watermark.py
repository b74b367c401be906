"""Watermark of the index: for each document stream, the id up to which all is handled."""

from __future__ import annotations

from collections.abc import Mapping

from redis.asyncio import Redis

from events.names import GROUPS, Names, Topic
from events.positions import LogPosition, change_streams
from events.server.connection import redis_errors
from events.streams.entries import order
from events.streams.groups import read_progress

__all__ = ["reached", "read_watermark"]


def reached(watermark: Mapping[str, str], token: str) -> bool:
    """Return whether everything up to a token's entry is handled.

    Raises:
        MalformedEvent: the text is not a token.
    """
    wanted = LogPosition.from_token(token)
    handled = watermark.get(f"{wanted.lane}:{wanted.partition}", "0-0")
    return order(wanted.entry_id) <= order(handled)


async def read_watermark(
    redis: Redis, names: Names, group: str = GROUPS[Topic.CHANGED_LIVE]
) -> dict[str, str]:
    """Return an entry id by ``lane:partition``; a group has acknowledged every entry up to it.

    The default group is the indexer: those entries are applied or dead-lettered.

    The id is "0-0" if nothing was read yet. It can only be too low.

    Raises:
        Unavailable: Redis can't be reached.
    """
    streams = change_streams(names)
    with redis_errors():
        groups_progress = await read_progress(
            redis, [(names.stream(*stream), group) for stream in streams]
        )
    return {
        f"{stream.topic.lane}:{stream.partition}": progress.handled
        for stream, progress in zip(streams, groups_progress, strict=True)
    }
