"""The log of changes as it is read back: for the archive, and for replays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
from events.ranking import Rank, rank_of
from events.signing import SIGNATURE_FIELD
from runtime.errors import MalformedEvent

__all__ = ["Admit", "LoggedChange", "StreamedChange", "read_changes", "streamed_change"]

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
        """Place in the log."""
        return self.position, self.partition

    @property
    def rank(self) -> Rank:
        """Of two changes of one document, the one with the greater rank stands."""
        return rank_of(self.position, self.partition, self.event.data.origin)


@dataclass(frozen=True, slots=True)
class StreamedChange:
    """A change as it lies in a stream, with what its signature is checked by.

    ``own``: the place of the entry itself, whatever place it claims.
    """

    change: LoggedChange
    own: Position
    raw: bytes
    signature: bytes | None

    @property
    def project(self) -> str:
        """The project that it is to change."""
        return self.change.event.data.project


Admit = Callable[[Sequence[StreamedChange]], Awaitable[Sequence[StreamedChange]]]
"""Tells which changes count, in the order given."""


def streamed_change(lane: Lane, partition: int, entry: Entry) -> StreamedChange:
    """The change that an entry of a stream of changes holds.

    Raises:
        MalformedEvent: it holds none, or its position can't be.
    """
    own = Position(lane, partition, entry.id)
    position = kept_position(entry.fields, own)
    raw = entry.fields.get(b"event", b"")
    change = LoggedChange(partition, position, DocumentChanged.from_bytes(raw))
    return StreamedChange(change, own, raw, entry.fields.get(SIGNATURE_FIELD))


async def read_changes(
    redis: Redis, names: Names, after: Mapping[str, str] = {}, admit: Admit | None = None
) -> AsyncIterator[LoggedChange]:
    """Every change that the document streams hold, of all projects, stream by stream.

    What isn't such an event is left out, and so is what ``admit`` leaves out. ``after``: entry id
    by stream key to begin behind.

    Raises:
        Unavailable: Redis can't be reached.
    """
    for lane, partition in product(Lane, range(names.partitions)):
        key = names.stream(Topic.of_lane(lane), partition)
        last = after.get(key, "0-0")
        while entries := await _page(redis, key, last):
            found = [_change(lane, partition, entry) for entry in entries]
            changes: Sequence[StreamedChange] = [one for one in found if one is not None]
            for one in changes if admit is None else await admit(changes):
                yield one.change
            last = entries[-1].id


async def _page(redis: Redis, key: str, after: str) -> list[Entry]:
    with redis_errors():
        reply: Any = await redis.xrange(key, min=f"({after}", count=_PAGE_ENTRIES)
    return entries_of(reply)


def _change(lane: Lane, partition: int, entry: Entry) -> StreamedChange | None:
    try:
        return streamed_change(lane, partition, entry)
    except MalformedEvent as error:
        log.debug("log.entry_skipped", entry_id=entry.id, reason=str(error))
        return None
