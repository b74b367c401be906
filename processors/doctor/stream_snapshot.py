"""The current document streams: their entries, and how far each group has read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from events.deployment import follow_stamp
from events.models import DocumentChunked
from events.names import (
    ARCHIVER,
    GROUPS,
    Lane,
    LogPosition,
    Names,
    StreamKey,
    Topic,
    change_streams,
)
from events.server.connection import redis_errors
from events.streams.changes import Admit, LoggedChange, StreamedChange, streamed_change
from events.streams.entries import Entry, entries_of, order
from events.streams.groups import read_pending, read_progress
from runtime.errors import MalformedEvent
from store.archive.claims import claim

__all__ = ["INDEXER", "Cursor", "StreamEntry", "Streams", "logged", "read_streams"]

INDEXER = GROUPS[Topic.CHANGED_LIVE]
EMBEDDER = GROUPS[Topic.CHUNKED_LIVE]

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A change in a stream, without its content."""

    stream: StreamKey
    entry_id: str
    change: LoggedChange

    @property
    def token(self) -> str:
        """The token that its publisher received."""
        return self.own.token

    @property
    def is_original(self) -> bool:
        """True if its log position is its own, not kept by a redrive or asserted by a publisher."""
        return self.own.position == self.change.position

    @property
    def own(self) -> LogPosition:
        """Position of the entry itself, whatever position it asserts."""
        return LogPosition.of_entry(self.stream.topic.lane, self.stream.partition, self.entry_id)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Progress of a group in a stream. ``pending``: idle time (ms) by id of in-flight entries.

    A group that does not exist has read nothing.
    """

    delivered: str = "0-0"
    pending: Mapping[str, int] = field(default_factory=dict)

    def handled(self, entry_id: str) -> bool:
        """Return whether the group has acknowledged an entry."""
        return order(entry_id) <= order(self.delivered) and entry_id not in self.pending


@dataclass(frozen=True)
class Streams:
    """All document streams.

    ``began``: the least position that a change published later can have.
    ``requests``: log positions of changes whose vectors are requested from an embedder and not
    delivered yet, by project and generation.
    """

    began: int
    cursors: Mapping[tuple[str, StreamKey], Cursor]
    entries: Mapping[str, Sequence[StreamEntry]]
    requests: Mapping[tuple[str, int], Set[LogPosition]] = field(default_factory=dict)

    def of(self, project: str) -> Sequence[StreamEntry]:
        """The changes of one project."""
        return self.entries.get(project, ())

    def requested(self, project: str, generation_id: int) -> Set[LogPosition]:
        """Log positions of changes whose vectors are requested."""
        return self.requests.get((project, generation_id), frozenset())

    def handled(self, group: str, entry: StreamEntry) -> bool:
        """Return whether a group has acknowledged an entry."""
        return self.cursors[group, entry.stream].handled(entry.entry_id)


async def read_streams(redis: Redis, names: Names, admit: Admit | None = None) -> Streams:
    """Read cursors, then entries, then vector requests.

    The cursors come first, so that everything before them was handled before any later read.
    ``admit`` selects the changes that count; without it, all do.

    Raises:
        Unavailable: Redis can't be reached.
    """
    await follow_stamp(redis, names)
    streams = change_streams(names)
    with redis_errors():
        began = await _position_of_now(redis)
        cursors = {
            (group, stream): await _cursor(redis, names.stream(*stream), group)
            for stream in streams
            for group in (INDEXER, ARCHIVER)
        }
        entries: defaultdict[str, list[StreamEntry]] = defaultdict(list)
        for stream in streams:
            async for entry in _entries(redis, names, stream, admit):
                entries[entry.change.event.data.project].append(entry)
        # after the cursors: an indexer requests vectors before it acknowledges the change
        requests = await _requests(redis, names)
    return Streams(began, cursors, entries, requests)


async def _requests(redis: Redis, names: Names) -> Mapping[tuple[str, int], Set[LogPosition]]:
    requests: defaultdict[tuple[str, int], set[LogPosition]] = defaultdict(set)
    for lane in Lane:
        for partition in range(names.partitions):
            key = names.stream(Topic.of_chunked(lane), partition)
            cursor = await _cursor(redis, key, EMBEDDER)
            async for page in _pages(redis, key):
                for entry in page:
                    if not cursor.handled(entry.id):
                        _add_request(requests, entry)
    return requests


def _add_request(requests: Mapping[tuple[str, int], set[LogPosition]], entry: Entry) -> None:
    try:
        data = DocumentChunked.from_bytes(entry.fields.get(b"event", b"")).data
    except MalformedEvent:
        return
    position = LogPosition.from_token(data.token)
    requests[data.project, data.generation].add(position)


async def _position_of_now(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    milliseconds = int(seconds) * 1000 + int(microseconds) // 1000
    return LogPosition.of_entry(Lane.BULK, 0, f"{milliseconds}-0").position


async def _cursor(redis: Redis, key: str, group: str) -> Cursor:
    (progress,) = await read_progress(redis, [(key, group)])
    pending = await read_pending(redis, key, group) if progress.exists else {}
    return Cursor(progress.delivered, pending)


async def _entries(
    redis: Redis, names: Names, stream: StreamKey, admit: Admit | None
) -> AsyncIterator[StreamEntry]:
    async for page in _pages(redis, names.stream(*stream)):
        streamed = [_streamed(entry, stream) for entry in page]
        changes: Sequence[StreamedChange] = [change for change in streamed if change is not None]
        for change in changes if admit is None else await admit(changes):
            yield StreamEntry(stream, change.own.entry_id, claim([change.change]).changes[0])


async def _pages(redis: Redis, key: str) -> AsyncIterator[Sequence[Entry]]:
    after = "-"
    while True:
        page: Any = await redis.xrange(key, after, "+", _PAGE)
        yield entries_of(page)
        if len(page) < _PAGE:
            return
        after = f"({page[-1][0].decode()}"


def logged(entry: Entry, stream: StreamKey) -> LoggedChange | None:
    """Parse the change in an entry. Returns None if the entry is not a change."""
    streamed = _streamed(entry, stream)
    return None if streamed is None else streamed.change


def _streamed(entry: Entry, stream: StreamKey) -> StreamedChange | None:
    try:
        return streamed_change(stream, entry)
    except MalformedEvent:
        return None
