"""The archiver's consumer group: reads every stream of changes, and acknowledges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from events.names import ARCHIVER, Names, StreamKey, change_streams
from events.server.connection import redis_errors
from events.streams.changes import StreamedChange, streamed_change
from events.streams.entries import Entry
from runtime import metrics
from runtime.errors import MalformedEvent

__all__ = [
    "MOST_BYTES",
    "MOST_ENTRIES",
    "Batch",
    "LogGroup",
    "Sorted",
    "entry_ids_of",
    "sort_out",
]

log = structlog.get_logger(__name__)

_CONSUMER = "archiver"
"""The same name in every process, so that a new archiver finds the entries of the previous one."""

_PAGE = 100
"""Entries of the first page of a batch, whose sizes are not known."""

_FEWEST_PER_PAGE = 25
_MOST_PER_PAGE = 400
_NEW = ">"
_FIRST = "0"
_IDS_PER_COMMAND = 1_000


class LogGroup:
    """Consumer group of the archiver. Reads never block, so that none has to be cancelled.

    Methods raise Unavailable if Redis can't be reached.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._after: dict[StreamKey, str] = {}
        self.has_read = False
        """True if the last batch had entries."""

    async def begin(self) -> None:
        """Create missing groups, and start reading with the pending entries."""
        streams = change_streams(self._names)
        for stream in streams:
            await self._create(stream)
        self._after = dict.fromkeys(streams, _FIRST)

    def reread_pending(self) -> None:
        """Start the next batch with the pending entries: earlier batches left some of them."""
        self._after = dict.fromkeys(self._after, _FIRST)

    async def read(self) -> Batch:
        """Read a full batch, or all entries there are."""
        batch = Batch()
        for stream in change_streams(self._names):
            if stream not in self._after:  # the number of partitions was raised
                await self._create(stream)
                self._after[stream] = _FIRST
        for stream in await self._with_entries(batch):
            while not batch.is_full and await self._read_page(stream, batch):
                pass
        self.has_read = batch.count > 0
        return batch

    async def acknowledge(self, entry_ids: Mapping[StreamKey, Sequence[str]]) -> None:
        """Acknowledge entries, given by stream."""
        with redis_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for stream, ids in entry_ids.items():
                    for start in range(0, len(ids), _IDS_PER_COMMAND):
                        part = ids[start : start + _IDS_PER_COMMAND]
                        pipeline.xack(self._names.stream(*stream), ARCHIVER, *part)
                await pipeline.execute()

    async def _with_entries(self, batch: Batch) -> list[StreamKey]:
        """Add new entries of every stream by one command; return the streams that may have more."""
        after_pending = [stream for stream, after in self._after.items() if after == _NEW]
        if len(after_pending) < 2:
            return list(self._after)
        by_key = {self._names.stream(*stream).encode(): stream for stream in after_pending}
        streams: Any = dict.fromkeys(by_key, _NEW)
        share = max(1, _PAGE // len(streams))
        try:
            with redis_errors():
                reply: Any = await self._redis.xreadgroup(ARCHIVER, _CONSUMER, streams, count=share)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            return list(self._after)
        for key, entries in reply:
            batch.add(by_key[key], [Entry(entry[0].decode(), entry[1]) for entry in entries])
        full = {by_key[key] for key, entries in reply if len(entries) == share}
        return [stream for stream in self._after if stream in full or stream not in after_pending]

    async def _read_page(self, stream: StreamKey, batch: Batch) -> bool:
        """Add one page to the batch; return whether there may be more."""
        after = self._after[stream]
        reply = await self._entries(stream, after, batch.page_entries)
        if reply and after != _NEW:
            self._after[stream] = reply[-1][0].decode()
        if not reply and after != _NEW:
            self._after[stream] = _NEW
            return True
        entries = [Entry(entry_id.decode(), fields) for entry_id, fields in reply if fields]
        lost = [entry_id.decode() for entry_id, fields in reply if not fields]
        batch.add(stream, entries)
        if lost:
            await self._discard(stream, lost)
        return bool(reply)

    async def _entries(self, stream: StreamKey, after: str, count: int) -> Sequence[Any]:
        try:
            return await self._read_group(stream, after, count)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            reason = str(error)
        log.error("group.lost", stream=self._names.stream(*stream), group=ARCHIVER, error=reason)
        await self._create(stream)
        self._after[stream] = _NEW
        return await self._read_group(stream, _NEW, count)

    async def _read_group(self, stream: StreamKey, after: str, count: int) -> Sequence[Any]:
        with redis_errors():
            reply: Any = await self._redis.xreadgroup(
                ARCHIVER, _CONSUMER, {self._names.stream(*stream): after}, count=count
            )
        return reply[0][1] if reply else []

    async def _create(self, stream: StreamKey) -> None:
        """Create the group at the first entry: archiving a change twice does no harm."""
        with redis_errors():
            try:
                await self._redis.xgroup_create(
                    self._names.stream(*stream), ARCHIVER, id="0", mkstream=True
                )
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    async def _discard(self, stream: StreamKey, entry_ids: Sequence[str]) -> None:
        """Acknowledge entries that were trimmed manually while pending: they can't be restored."""
        metrics.CHANGES_NOT_ARCHIVED.inc(len(entry_ids), reason="lost")
        log.error(
            "entries.lost", stream=self._names.stream(*stream), entry_ids=list(entry_ids)[:20]
        )
        await self.acknowledge({stream: entry_ids})


MOST_ENTRIES = 2_000
MOST_BYTES = 4 * 2**20


@dataclass
class Batch:
    """Entries by stream; ``size_bytes`` counts their fields, ``largest_bytes`` those of one."""

    entries: dict[StreamKey, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    size_bytes: int = 0
    largest_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the batch should be archived before more is read."""
        return self.count >= MOST_ENTRIES or self.size_bytes >= MOST_BYTES

    @property
    def page_entries(self) -> int:
        """Number of entries to read next, so that the batch becomes full if they are as large.

        While a worker is busy, each request waits for it, so a batch is read in few of them. But
        the next entries may be larger than all before, so a page grows by steps.
        """
        room = (MOST_BYTES - self.size_bytes) // max(self.largest_bytes, 1)
        most = min(max(self.count, _PAGE), _MOST_PER_PAGE)
        return max(_FEWEST_PER_PAGE, min(room, most, MOST_ENTRIES - self.count))

    def add(self, stream: StreamKey, entries: Sequence[Entry]) -> None:
        """Add entries of a stream."""
        self.entries[stream] += entries
        self.count += len(entries)
        sizes = [sum(map(len, entry.fields.values())) for entry in entries]
        self.size_bytes += sum(sizes)
        self.largest_bytes = max(self.largest_bytes, *sizes, 0)


@dataclass(frozen=True)
class Sorted:
    """The changes of a batch by project. ``skipped``: ids of entries that are not changes."""

    changes: Mapping[str, list[StreamedChange]]
    skipped: Mapping[StreamKey, list[str]]


def sort_out(batch: Batch) -> Sorted:
    """Parse every entry. Entries that are not changes are skipped: the indexer handles them."""
    changes: dict[str, list[StreamedChange]] = defaultdict(list)
    skipped: dict[StreamKey, list[str]] = defaultdict(list)
    for stream, entries in batch.entries.items():
        for entry in entries:
            try:
                change = streamed_change(stream, entry)
            except MalformedEvent as error:
                skipped[stream].append(entry.id)
                metrics.CHANGES_NOT_ARCHIVED.inc(reason=error.code)
                log.warning("archiver.entry_skipped", entry_id=entry.id, reason=str(error))
            else:
                changes[change.project].append(change)
    return Sorted(changes, skipped)


def entry_ids_of(changes: Iterable[StreamedChange]) -> Mapping[StreamKey, list[str]]:
    """Ids of the entries that hold changes, by stream."""
    entry_ids: dict[StreamKey, list[str]] = defaultdict(list)
    for change in changes:
        entry_ids[change.own.stream].append(change.own.entry_id)
    return entry_ids
