"""Reading of the change log, for the archive and for replays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio import Redis

from events.models import DocumentChanged
from events.names import LogPosition, Names, Rank, StreamKey, change_streams, kept_position, rank_of
from events.server.connection import redis_errors
from events.signatures import SIGNATURE_FIELD
from events.streams.entries import Entry, entries_of
from runtime.errors import MalformedEvent

__all__ = [
    "Admit",
    "LoggedChange",
    "StreamedChange",
    "read_changes",
    "read_entries",
    "streamed_change",
]

log = structlog.get_logger(__name__)

_PAGE_ENTRIES = 500


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change with its position in the log.

    ``log_position`` is the one that counts for the fence. If an event was redriven or republished,
    it is that of the first publication.
    """

    log_position: LogPosition
    event: DocumentChanged

    @property
    def position(self) -> int:
        """Number of the log position."""
        return self.log_position.position

    @property
    def partition(self) -> int:
        """Partition of the log position."""
        return self.log_position.partition

    @property
    def rank(self) -> Rank:
        """Rank of the change: of two changes of one document, the greater rank wins."""
        return rank_of(self.log_position, self.event.data.origin)


@dataclass(frozen=True, slots=True)
class StreamedChange:
    """A change as read from a stream, with its raw bytes and signature for verification.

    ``own`` is the position of the entry itself, whatever position it asserts.
    """

    change: LoggedChange
    own: LogPosition
    raw: bytes
    signature: bytes | None

    @property
    def project(self) -> str:
        """Name of the project that the change applies to."""
        return self.change.event.data.project


Admit = Callable[[Sequence[StreamedChange]], Awaitable[Sequence[StreamedChange]]]
"""Returns the changes that count, in the given order."""


def streamed_change(stream: StreamKey, entry: Entry) -> StreamedChange:
    """Parse the change in an entry of a change stream.

    Raises:
        MalformedEvent: the entry holds no change, or its position is impossible.
    """
    own = LogPosition.of_entry(stream.topic.lane, stream.partition, entry.id)
    position = kept_position(entry.fields, own)
    raw = entry.fields.get(b"event", b"")
    change = LoggedChange(LogPosition(position, stream.partition), DocumentChanged.from_bytes(raw))
    return StreamedChange(change, own, raw, entry.fields.get(SIGNATURE_FIELD))


async def read_changes(
    redis: Redis, names: Names, after: Mapping[str, str] = {}, admit: Admit | None = None
) -> AsyncIterator[StreamedChange]:
    """Yield every change in the document streams, of all projects, stream by stream.

    Entries that are not such events are skipped, and so are changes that ``admit`` leaves out.
    ``after`` maps a stream key to the entry id after which reading starts.

    Raises:
        Unavailable: Redis can't be reached.
    """
    for stream in change_streams(names):
        key = names.stream(*stream)
        last = after.get(key, "0-0")
        while entries := await _page(redis, key, last):
            parsed = [_change(stream, entry) for entry in entries]
            changes: Sequence[StreamedChange] = [change for change in parsed if change is not None]
            for admitted in changes if admit is None else await admit(changes):
                yield admitted
            last = entries[-1].id


async def read_entries(
    redis: Redis, names: Names, own: Sequence[LogPosition]
) -> list[StreamedChange]:
    """Read the changes in single entries, given by their own positions, in one request.

    Entries that were trimmed, or that hold no change, are absent.

    Raises:
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        async with redis.pipeline(transaction=False) as pipeline:
            for position in own:
                key, entry_id = names.stream(*position.stream), position.entry_id
                pipeline.xrange(key, entry_id, entry_id)
            replies: list[Any] = await pipeline.execute()
    changes = (
        _change(position.stream, entry)
        for position, reply in zip(own, replies, strict=True)
        for entry in entries_of(reply)
    )
    return [change for change in changes if change is not None]


async def _page(redis: Redis, key: str, after: str) -> list[Entry]:
    with redis_errors():
        reply: Any = await redis.xrange(key, min=f"({after}", count=_PAGE_ENTRIES)
    return entries_of(reply)


def _change(stream: StreamKey, entry: Entry) -> StreamedChange | None:
    try:
        return streamed_change(stream, entry)
    except MalformedEvent as error:
        log.debug("log.entry_skipped", entry_id=entry.id, reason=str(error))
        return None
