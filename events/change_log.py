"""The log of changes as it is read back: for the archive, and for replays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import structlog
from redis.asyncio import Redis

from events.connection import redis_errors
from events.entries import Entry, entries_of
from events.kept_position import kept_position
from events.models import DocumentChanged
from events.names import Lane, Names, Position, Topic
from runtime.errors import MalformedEvent

__all__ = ["LoggedChange", "logged_change", "read_changes"]

log = structlog.get_logger(__name__)

_PAGE_ENTRIES = 500


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change with its place in the log.

    ``position`` is the number that counts for the fence (``Position.number``; that of the first
    publication, where an event was redriven or republished).
    """

    partition: int
    position: int
    event: DocumentChanged

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: of two changes of one document, the greater one stands."""
        return self.position, self.partition


def logged_change(lane: Lane, partition: int, entry: Entry) -> LoggedChange:
    """The change that an entry of a stream of changes holds.

    Raises:
        MalformedEvent: it holds none, or its position can't be.
    """
    position = kept_position(entry.fields, Position(lane, partition, entry.id))
    event = DocumentChanged.from_bytes(entry.fields.get(b"event", b""))
    return LoggedChange(partition, position, event)


async def read_changes(
    redis: Redis, names: Names, after: Mapping[str, str] = {}
) -> AsyncIterator[LoggedChange]:
    """Every change that the document streams hold, of all projects, stream by stream.

    What isn't such an event is left out. ``after``: entry id by stream key to begin behind.

    Raises:
        Unavailable: Redis can't be reached.
    """
    for lane, partition in product(Lane, range(names.partitions)):
        key = names.stream(Topic.of_lane(lane), partition)
        last = after.get(key, "0-0")
        while entries := await _page(redis, key, last):
            for entry in entries:
                change = _change(lane, partition, entry)
                if change is not None:
                    yield change
            last = entries[-1].id


async def _page(redis: Redis, key: str, after: str) -> list[Entry]:
    with redis_errors():
        reply: Any = await redis.xrange(key, min=f"({after}", count=_PAGE_ENTRIES)
    return entries_of(reply)


def _change(lane: Lane, partition: int, entry: Entry) -> LoggedChange | None:
    try:
        return logged_change(lane, partition, entry)
    except MalformedEvent as error:
        log.debug("log.entry_skipped", entry_id=entry.id, reason=str(error))
        return None
