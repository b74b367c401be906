"""Watermark of the index: for each document stream, the id up to which all is handled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from events.names import GROUPS, Lane, Names, Topic
from events.positions import LogPosition
from events.server.connection import redis_errors
from events.streams.entries import is_absent, order, preceding

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

    The id is "0-0" if nothing was read yet. It can only be too low: the cursor is read before the
    pending entries, so an entry delivered in between is not counted as handled.

    Raises:
        Unavailable: Redis can't be reached.
    """
    streams = [(lane, partition) for lane in Lane for partition in range(names.partitions)]
    with redis_errors():
        async with redis.pipeline(transaction=False) as pipeline:
            for lane, partition in streams:
                key = names.stream(Topic.of_lane(lane), partition)
                pipeline.xinfo_groups(key)
                pipeline.xpending(key, group)
            replies = await pipeline.execute(raise_on_error=False)
        return {
            f"{lane}:{partition}": _handled(group, replies[2 * i], replies[2 * i + 1])
            for i, (lane, partition) in enumerate(streams)
        }


def _handled(name: str, groups: Any, pending: Any) -> str:
    """Return the id for one stream; "0-0" if the stream or the group does not exist."""
    if is_absent(groups) or is_absent(pending):
        return "0-0"
    for group in groups:
        if group["name"] == name.encode():
            oldest = pending["min"]
            return str(
                preceding(oldest.decode()) if oldest else group["last-delivered-id"].decode()
            )
    return "0-0"
