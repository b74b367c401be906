"""Realignment of streams that restarted behind the ledger, so that their changes take effect.

Redis stamps entries by its clock. If it lost its streams and its clock is behind, new changes get
older positions than those in the index, although they were published later.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import structlog
from redis.asyncio import Redis

from events.names import GROUPS, Lane, LogPosition, Names, Topic
from events.server.connection import redis_errors
from events.server.scripts import MoveOn
from store.store import Store

__all__ = ["Realigner"]

log = structlog.get_logger(__name__)


class Realigner:
    """Advances streams past the ledger's last position, and republishes their pending changes."""

    def __init__(self, redis: Redis, names: Names, store: Store) -> None:
        self._names = names
        self._store = store
        self._move_on = MoveOn(redis)

    async def run(self, project: str, partitions: Collection[int]) -> int:
        """Realign the streams of ``partitions`` and return the number of republished changes.

        A stream is behind if its last entry is older than a change of it that was handled. Its
        unacknowledged entries are then copied after that change, in their order, atomically with
        the advance. The old entries stay: they are superseded by their copies.

        Raises:
            Unavailable: a server cannot be reached.
        """
        reach = await self._store.reach(project)
        copied = 0
        for lane, partition in product(Lane, partitions):
            handled = reach.handled.get((partition, lane))
            if handled is not None:
                copied += await self._look_at(lane, partition, handled, reach.end)
        return copied

    async def _look_at(self, lane: Lane, partition: int, handled: int, end: int) -> int:
        topic = Topic.of_lane(lane)
        stream = self._names.stream(topic, partition)
        with redis_errors():
            copied = await self._move_on(
                stream,
                group=GROUPS[topic],
                handled=LogPosition(handled, partition).entry_id,
                goal=_after(end),
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


def _after(position: int) -> str:
    """Id of the next millisecond, after which a stream can add a million entries."""
    milliseconds = int(LogPosition(position, 0).entry_id.partition("-")[0])
    return f"{milliseconds + 1}-0"
