"""Streams of changes that began again behind the log: their entries are too old to take effect.

Redis stamps entries by its clock. When it has lost its streams, and its clock is behind, new
changes are older than those that the index has, although they were published later.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import structlog
from redis.asyncio import Redis

from events.connection import redis_errors
from events.names import GROUPS, Lane, Names, Position, Topic
from events.scripts import MoveOn
from store.store import Store

__all__ = ["Realigner"]

log = structlog.get_logger(__name__)


class Realigner:
    """Moves streams on to where the ledger is, and publishes again what waits in them."""

    def __init__(self, redis: Redis, names: Names, store: Store) -> None:
        self._names = names
        self._store = store
        self._move_on = MoveOn(redis)

    async def run(self, project: str, partitions: Collection[int]) -> int:
        """Look at the streams of some partitions; how many changes were published again.

        A stream is behind when its last entry is older than a change of it that was handled. All
        that isn't acknowledged in it is added once more behind that change, in its order, in one
        step with the move. The old entries stay: they are superseded by their copies.

        Raises:
            Unavailable: a server can't be reached.
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
                handled=Position.from_number(handled, partition).entry_id,
                goal=_after(end),
            )
        if copied is None:
            return 0
        log.warning(
            "stream.moved_on",
            stream=stream,
            republished=copied,
            reason="Redis lost it and its clock is behind: it stamps changes before earlier ones",
        )
        return copied


def _after(position: int) -> str:
    """The id of the next millisecond: behind it, a stream has a million numbers to give."""
    milliseconds = int(Position.from_number(position, 0).entry_id.partition("-")[0])
    return f"{milliseconds + 1}-0"
