"""Published changes that still wait in the log, and the progress of the workers there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from redis.asyncio import Redis

from events.names import GROUPS, LogPosition, Names, StreamKey, change_streams
from events.server.connection import redis_errors
from events.server.scripts import Present
from events.streams.entries import is_absent, order
from events.streams.groups import Progress, read_progress
from runtime.errors import ConfigurationError

__all__ = ["present_changes", "read_cursors"]

_AT_ONCE = 1000


async def present_changes(redis: Redis, names: Names, tokens: Iterable[str]) -> set[str]:
    """Return the given changes that wait in their streams.

    If a publisher may not read entries, the answer is derived from the cursors of the workers. Then
    a change that was lost counts as present until the workers have read past it.

    Raises:
        Unavailable: Redis can't be reached.
        ConfigurationError: the user may not read the cursors either.
    """
    by_stream: defaultdict[StreamKey, list[LogPosition]] = defaultdict(list)
    for token in tokens:
        position = LogPosition.from_token(token)
        by_stream[position.stream].append(position)
    waiting = set[str]()
    for stream, positions in by_stream.items():
        key = names.stream(*stream)
        for start in range(0, len(positions), _AT_ONCE):
            batch = positions[start : start + _AT_ONCE]
            entry_ids = [position.entry_id for position in batch]
            present = await _present(redis, key, GROUPS[stream.topic], entry_ids)
            waiting |= {
                position.token for position, there in zip(batch, present, strict=True) if there
            }
    return waiting


async def _present(redis: Redis, key: str, group: str, entry_ids: Sequence[str]) -> list[bool]:
    try:
        with redis_errors():
            return await Present(redis)(key, entry_ids)
    except ConfigurationError:
        return await _present_by_cursor(redis, key, group, entry_ids)


async def _present_by_cursor(
    redis: Redis, key: str, group: str, entry_ids: Sequence[str]
) -> list[bool]:
    """Count an entry as absent if it is delivered and not pending, else as present."""
    with redis_errors():
        (progress,) = await read_progress(redis, [(key, group)])
        async with redis.pipeline(transaction=False) as pipeline:
            pipeline.xlen(key)
            for entry_id in entry_ids:
                pipeline.xpending_range(key, group, entry_id, entry_id, 1)
            length, *pending = await pipeline.execute(raise_on_error=False)
        if is_absent(length) or not length:
            return [False] * len(entry_ids)
    if not progress.exists:
        return [True] * len(entry_ids)
    return [
        bool(rows) if progress.lag == 0 or order(entry_id) <= order(progress.delivered) else True
        for entry_id, rows in zip(entry_ids, pending, strict=True)
    ]


async def read_cursors(redis: Redis, names: Names) -> tuple[Progress, ...]:
    """Return how far workers have read and acknowledged changes; it differs when any has moved.

    Raises:
        Unavailable: Redis can't be reached.
        ConfigurationError: the user may not read the cursors.
    """
    groups = [(names.stream(*key), GROUPS[key.topic]) for key in change_streams(names)]
    with redis_errors():
        return tuple(await read_progress(redis, groups))
