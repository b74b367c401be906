"""The archiver's consumer group: reads every stream of changes, and acknowledges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from events.names import ARCHIVER, Lane, Names, Topic
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
    "Place",
    "Sorted",
    "places_of",
    "sort_out",
]

log = structlog.get_logger(__name__)

_CONSUMER = "archiver"
"""The same name in every process, so that a new archiver finds the entries of the previous one."""

_PAGE = 100
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
        self._after: dict[Place, str] = {}

    async def begin(self) -> None:
        """Create missing groups, and start reading with the pending entries."""
        places = list(product(Lane, range(self._names.partitions)))
        for place in places:
            await self._create(place)
        self._after = dict.fromkeys(places, _FIRST)

    def look_again(self) -> None:
        """Start the next batch with the pending entries: earlier batches left some of them."""
        self._after = dict.fromkeys(self._after, _FIRST)

    async def read(self) -> Batch:
        """Read a full batch, or all entries there are."""
        batch = Batch()
        for place in self._after:
            while not batch.is_full and await self._read_page(place, batch):
                pass
        return batch

    async def acknowledge(self, entry_ids: Mapping[Place, Sequence[str]]) -> None:
        """Acknowledge entries, given by stream."""
        with redis_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for place, ids in entry_ids.items():
                    for start in range(0, len(ids), _IDS_PER_COMMAND):
                        part = ids[start : start + _IDS_PER_COMMAND]
                        pipeline.xack(self._key(place), ARCHIVER, *part)
                await pipeline.execute()

    async def _read_page(self, place: Place, batch: Batch) -> bool:
        """Add one page to the batch; return whether there may be more."""
        after = self._after[place]
        reply = await self._entries(place, after)
        if reply and after != _NEW:
            self._after[place] = reply[-1][0].decode()
        if not reply and after != _NEW:
            self._after[place] = _NEW
            return True
        entries = [Entry(entry_id.decode(), fields) for entry_id, fields in reply if fields]
        lost = [entry_id.decode() for entry_id, fields in reply if not fields]
        batch.add(place, entries)
        if lost:
            await self._let_go(place, lost)
        return bool(reply)

    async def _entries(self, place: Place, after: str) -> Sequence[Any]:
        try:
            return await self._read_group(place, after)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            reason = str(error)
        log.error("group.lost", stream=self._key(place), group=ARCHIVER, error=reason)
        await self._create(place)
        self._after[place] = _NEW
        return await self._read_group(place, _NEW)

    async def _read_group(self, place: Place, after: str) -> Sequence[Any]:
        with redis_errors():
            reply: Any = await self._redis.xreadgroup(
                ARCHIVER, _CONSUMER, {self._key(place): after}, count=_PAGE
            )
        return reply[0][1] if reply else []

    async def _create(self, place: Place) -> None:
        """Create the group at the first entry: archiving a change twice does no harm."""
        with redis_errors():
            try:
                await self._redis.xgroup_create(self._key(place), ARCHIVER, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    async def _let_go(self, place: Place, entry_ids: Sequence[str]) -> None:
        """Acknowledge entries that were trimmed manually while pending: they can't be restored."""
        metrics.CHANGES_NOT_ARCHIVED.inc(len(entry_ids), reason="lost")
        log.error("entries.lost", stream=self._key(place), entry_ids=list(entry_ids)[:20])
        await self.acknowledge({place: entry_ids})

    def _key(self, place: Place) -> str:
        lane, partition = place
        return self._names.stream(Topic.of_lane(lane), partition)


MOST_ENTRIES = 2_000
MOST_BYTES = 4 * 2**20

Place = tuple[Lane, int]
"""A stream of changes: lane and partition."""


@dataclass
class Batch:
    """Entries by stream; ``size_bytes`` counts their fields."""

    entries: dict[Place, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the batch should be archived before more is read."""
        return self.count >= MOST_ENTRIES or self.size_bytes >= MOST_BYTES

    def add(self, place: Place, entries: Sequence[Entry]) -> None:
        """Add entries of a stream."""
        self.entries[place] += entries
        self.count += len(entries)
        self.size_bytes += sum(len(value) for entry in entries for value in entry.fields.values())


@dataclass(frozen=True)
class Sorted:
    """The changes of a batch by project. ``skipped``: ids of entries that are not changes."""

    changes: Mapping[str, list[StreamedChange]]
    skipped: Mapping[Place, list[str]]


def sort_out(batch: Batch) -> Sorted:
    """Parse every entry. Entries that are not changes are skipped: the indexer handles them."""
    changes: dict[str, list[StreamedChange]] = defaultdict(list)
    skipped: dict[Place, list[str]] = defaultdict(list)
    for place, entries in batch.entries.items():
        for entry in entries:
            try:
                change = streamed_change(*place, entry)
            except MalformedEvent as error:
                skipped[place].append(entry.id)
                metrics.CHANGES_NOT_ARCHIVED.inc(reason=error.code)
                log.warning("archiver.entry_skipped", entry_id=entry.id, reason=str(error))
            else:
                changes[change.project].append(change)
    return Sorted(changes, skipped)


def places_of(changes: Iterable[StreamedChange]) -> Mapping[Place, list[str]]:
    """Ids of the entries that hold changes, by stream."""
    entry_ids: dict[Place, list[str]] = defaultdict(list)
    for change in changes:
        entry_ids[change.own.lane, change.own.partition].append(change.own.entry_id)
    return entry_ids
