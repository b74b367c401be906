"""Progress of consumer groups in their streams, and the watermark of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from events.names import GROUPS, LogPosition, Names, Topic, change_streams
from events.server.connection import redis_errors
from events.streams.entries import is_absent, order, preceding

__all__ = ["Progress", "reached", "read_groups", "read_pending", "read_progress", "read_watermark"]

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a group in a stream; a group that does not exist has read nothing.

    ``delivered`` is the id of the last delivered entry. ``pending`` counts the delivered entries
    that are not acknowledged. ``lag`` counts the entries that are not delivered, or is None if the
    server can't count them (Redis before 7, or after deletes).
    """

    exists: bool = False
    delivered: str = "0-0"
    pending: int = 0
    oldest_pending: str | None = None
    lag: int | None = None

    @property
    def handled(self) -> str:
        """The id up to which every entry is acknowledged."""
        return preceding(self.oldest_pending) if self.oldest_pending else self.delivered


async def read_progress(redis: Redis, groups: Sequence[tuple[str, str]]) -> list[Progress]:
    """Read the progress of each (stream key, group), in one round trip.

    A cursor is read before its pending entries, so an entry delivered in between is not counted as
    handled: progress can only be too low.

    Raises:
        RedisError: Redis can't be reached, or denies access.
    """
    async with redis.pipeline(transaction=False) as pipeline:
        for key, group in groups:
            pipeline.xinfo_groups(key)
            pipeline.xpending(key, group)
        replies = await pipeline.execute(raise_on_error=False)
    return [
        _progress(_rows(replies[2 * i]).get(group), replies[2 * i + 1])
        for i, (_, group) in enumerate(groups)
    ]


async def read_groups(redis: Redis, key: str) -> dict[str, Progress]:
    """Read the progress of every group of a stream; empty if the stream does not exist.

    Raises:
        RedisError: Redis can't be reached, or denies access.
    """
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.xinfo_groups(key)
        (reply,) = await pipeline.execute(raise_on_error=False)
        rows = _rows(reply)
        for group in rows:
            pipeline.xpending(key, group)
        summaries = await pipeline.execute(raise_on_error=False)
    progress = {
        group: _progress(row, summary)
        for (group, row), summary in zip(rows.items(), summaries, strict=True)
    }
    return {group: reached for group, reached in progress.items() if reached.exists}


async def read_pending(redis: Redis, key: str, group: str) -> dict[str, int]:
    """Read the pending entries of an existing group: idle time in milliseconds by entry id.

    Raises:
        RedisError: Redis can't be reached, or denies access.
    """
    idle_ms: dict[str, int] = {}
    after = "-"
    while True:
        rows: Any = await redis.xpending_range(key, group, after, "+", _PAGE)
        idle_ms |= {row["message_id"].decode(): row["time_since_delivered"] for row in rows}
        if len(rows) < _PAGE:
            return idle_ms
        after = f"({rows[-1]['message_id'].decode()}"


def _rows(reply: Any) -> dict[str, Mapping[str, Any]]:
    return {} if is_absent(reply) else {row["name"].decode(): row for row in reply}


def _progress(row: Mapping[str, Any] | None, pending: Any) -> Progress:
    if is_absent(pending) or row is None:
        return Progress()
    return Progress(
        exists=True,
        delivered=row["last-delivered-id"].decode(),
        pending=pending["pending"],
        oldest_pending=pending["min"].decode() if pending["min"] else None,
        lag=row.get("lag"),
    )


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
