"""Realignment of streams that restarted behind the ledger, so that their changes take effect.

Redis stamps entries by its clock. If it lost its streams and its clock is behind, new changes get
older positions than those in the index, although they were published later.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import Any

import structlog
from redis.asyncio import Redis

from events.names import GROUPS, Lane, LogPosition, Names, StreamKey, Topic
from events.server.connection import redis_errors
from events.server.scripts import MoveOn
from events.streams.entries import entries_of, order
from store.store import Store

__all__ = ["Realigner"]

log = structlog.get_logger(__name__)

_LATEST_ENTRIES = 100
_MICROSECONDS = 1000


class Realigner:
    """Advances streams past the ledger's last position, and republishes their pending changes."""

    def __init__(self, redis: Redis, names: Names, store: Store) -> None:
        self._redis = redis
        self._names = names
        self._store = store
        self._move_on = MoveOn(redis)

    async def run(self, project: str, partitions: Collection[int]) -> int:
        """Realign the streams of ``partitions`` and return the number of republished changes.

        A stream is behind if its last entry is older than a change of it that was handled. Its
        unacknowledged entries are then copied after that change, in their order, atomically with
        the advance. The old entries stay: they are superseded by their copies.

        A stream that lost only its end, as after a power loss, still has entries of before the
        loss. These keep their positions, or they would overtake a lost change that was handled
        after them. If the clock is not behind, nothing has to be moved in such a stream.

        Raises:
            Unavailable: a server cannot be reached.
        """
        reach = await self._store.reach(project)
        copied = 0
        for lane, partition in product(Lane, partitions):
            handled = reach.handled.get((partition, lane))
            if handled is not None:
                mark = LogPosition(handled, partition)
                copied += await self._realign(
                    project, StreamKey(Topic.of_lane(lane), partition), mark, reach.end
                )
        return copied

    async def _realign(self, project: str, key: StreamKey, mark: LogPosition, end: int) -> int:
        stream, group = self._names.stream(*key), GROUPS[key.topic]
        with redis_errors():
            if not await self._move_on.is_behind(stream, group=group, handled=mark.entry_id):
                return 0
            survivors = await self._survivors(project, key, mark)
            if survivors and await self._clock_ms() > order(mark.entry_id)[0]:
                return 0
            copied = await self._move_on(
                stream, group=group, handled=mark.entry_id, goal=_after(end), skip=survivors
            )
        if copied is None:
            return 0
        log.warning(
            "stream.advanced",
            stream=stream,
            republished=copied,
            reason="Redis lost it and its clock is behind: it stamps changes before earlier ones",
        )
        return copied

    async def _survivors(self, project: str, key: StreamKey, mark: LogPosition) -> set[str]:
        """Ids of the project's latest entries that were handled before the loss."""
        stream = self._names.stream(*key)
        reply: Any = await self._redis.xrevrange(stream, max=mark.entry_id, count=_LATEST_ENTRIES)
        lane = key.topic.lane
        ids = {
            LogPosition.of_entry(lane, key.partition, entry.id): entry.id
            for entry in entries_of(reply)
        }
        handled = await self._store.handled_no_later(project, ids, mark)
        return {ids[log_position] for log_position in handled}

    async def _clock_ms(self) -> int:
        seconds, microseconds = await self._redis.time()
        return int(seconds * 1000 + microseconds // _MICROSECONDS)


def _after(position: int) -> str:
    """Id of the next millisecond, after which a stream can add a million entries."""
    milliseconds = int(LogPosition(position, 0).entry_id.partition("-")[0])
    return f"{milliseconds + 1}-0"
