"""Redis commands of one consumer of one stream, and the entries that it reads.

Deliveries are counted by attempts that began, not by fetches: entries are claimed with XCLAIM and
an explicit RETRYCOUNT, after XPENDING with IDLE has listed the overdue ones. XAUTOCLAIM would count
each fetch, return no counts, and return fewer entries than requested before the end is reached.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from faust.types import TP, ConsumerMessage
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError
from redis.typing import EncodableT, FieldT

from events.names import LogPosition, Topic, kept_position
from events.server.scripts import ForgetConsumers
from events.streams.dead_letters import DeadLetter, instant_of, storable_signature, tellable
from runtime.errors import MalformedEvent
from runtime.traces import NO_SPAN, Span

__all__ = [
    "EVENT_FIELD",
    "Claimed",
    "Group",
    "InFlightEntry",
    "InFlightMessage",
    "Pending",
    "consumers_of",
    "is_group_missing",
    "letter_of",
    "others",
    "read_groups",
    "sign",
]

_IDS_PER_COMMAND = 1000


def is_group_missing(error: Exception) -> bool:
    """Return whether the stream or group is missing, after a flush or failover to an old copy."""
    return isinstance(error, ResponseError) and str(error).startswith(("NOGROUP", "UNBLOCKED"))


@dataclass(frozen=True)
class Pending:
    """One row of the list of pending entries."""

    id: str
    deliveries: int


@dataclass(frozen=True)
class Claimed:
    """Entries of a claim, and the ids of entries that were trimmed while pending."""

    entries: list[InFlightEntry] = field(default_factory=list)
    trimmed_ids: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """One consumer in the group of one stream. Methods raise the errors of redis-py."""

    redis: Redis
    tp: TP
    stream: str
    dead_stream: str
    name: str
    consumer: str
    lease: timedelta

    async def create(self) -> None:
        """Create stream and group if they don't exist; the group starts at the first entry."""
        try:
            await self.redis.xgroup_create(self.stream, self.name, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def read(self, blocking: Redis, count: int, block: timedelta) -> list[InFlightEntry]:
        """Read new entries. Never cancel this: the entries would be pending and unhandled."""
        reply: Any = await blocking.xreadgroup(
            self.name, self.consumer, {self.stream: ">"}, count=count, block=_ms(block)
        )
        return [
            InFlightEntry(self.tp, entry_id.decode(), fields)
            for _, entries in reply
            for entry_id, fields in entries
        ]

    async def pending(
        self, idle: timedelta, count: int, after: str = "", *, here: bool = False
    ) -> list[Pending]:
        """Return entries above an id that are pending for that long; ``here``: at this consumer."""
        rows: Any = await self.redis.xpending_range(
            self.stream,
            self.name,
            min=f"({after}" if after else "-",
            max="+",
            count=count,
            consumername=self.consumer if here else None,
            idle=_ms(idle) or None,
        )
        return [Pending(row["message_id"].decode(), row["times_delivered"]) for row in rows]

    async def has_pending(self) -> bool:
        """Return whether the group has pending entries, of any consumer."""
        summary: Any = await self.redis.xpending(self.stream, self.name)
        return bool(summary["pending"])

    async def claim(self, rows: Sequence[Pending], idle: timedelta) -> Claimed:
        """Take over entries that are still idle; the delivery counters stay unchanged."""
        if not rows:
            return Claimed()
        async with self.redis.pipeline(transaction=False) as pipeline:
            for row in rows:
                pipeline.xclaim(
                    self.stream,
                    self.name,
                    self.consumer,
                    _ms(idle),
                    [row.id],
                    retrycount=row.deliveries,
                )
            replies = await pipeline.execute()
        claimed = {row.id: _fields_of(reply) for row, reply in zip(rows, replies, strict=True)}
        entries = [
            InFlightEntry(self.tp, row.id, fields, row.deliveries + 1, counted=False)
            for row in rows
            if (fields := claimed[row.id])
        ]
        missing = [entry_id for entry_id, fields in claimed.items() if not fields]
        return Claimed(entries, await self._trimmed(missing))

    async def _trimmed(self, entry_ids: Sequence[str]) -> list[str]:
        """Return the ids trimmed from the stream; others were just claimed by another consumer."""
        if not entry_ids:
            return []
        async with self.redis.pipeline(transaction=False) as pipeline:
            for entry_id in entry_ids:
                pipeline.xrange(self.stream, entry_id, entry_id)
            replies = await pipeline.execute()
        return [entry_id for entry_id, reply in zip(entry_ids, replies, strict=True) if not reply]

    async def count_attempt(self, entries: Iterable[InFlightEntry]) -> None:
        """Write the attempts of redelivered entries to the delivery counters of Redis."""
        async with self.redis.pipeline(transaction=False) as pipeline:
            for entry in entries:
                self.queue_claim(pipeline, [entry.id], timedelta(), entry.attempt)
            await pipeline.execute()

    async def renew(self, entry_ids: Sequence[str]) -> set[str]:
        """Renew the leases of the entries that this consumer still has; return their ids."""
        pending = await self._pending_here(entry_ids)
        if pending:
            async with self.redis.pipeline(transaction=False) as pipeline:
                for chunk in _chunks(sorted(pending)):
                    pipeline.xclaim(self.stream, self.name, self.consumer, 0, chunk, justid=True)
                await pipeline.execute()
        return pending

    async def _pending_here(self, entry_ids: Sequence[str]) -> set[str]:
        pending, after = set[str](), ""
        while page := await self.pending(timedelta(), _IDS_PER_COMMAND, after, here=True):
            pending.update(row.id for row in page)
            after = page[-1].id
        return pending & set(entry_ids)

    def queue_acknowledgements(self, pipeline: Pipeline, entry_ids: Sequence[str]) -> None:
        """Queue the acknowledgement of finished entries, in any order."""
        for chunk in _chunks(entry_ids):
            pipeline.xack(self.stream, self.name, *chunk)

    def queue_claim(
        self, pipeline: Pipeline, entry_ids: Sequence[str], idle: timedelta, deliveries: int
    ) -> None:
        """Queue setting idle time and delivery counter, which makes an entry overdue."""
        for chunk in _chunks(entry_ids):
            pipeline.xclaim(
                self.stream,
                self.name,
                self.consumer,
                0,
                chunk,
                idle=_ms(idle),
                retrycount=deliveries,
                justid=True,
            )

    async def dead_letter(self, entry_id: str, fields: dict[FieldT, EncodableT]) -> None:
        """Add a dead letter and acknowledge its entry, in one transaction."""
        async with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.xadd(self.dead_stream, fields)
            pipeline.xack(self.stream, self.name, entry_id)
            await pipeline.execute()

    async def forget_consumers(self, silent_for: timedelta) -> int:
        """Remove dead consumers without pending entries from the group; return their number."""
        return await ForgetConsumers(self.redis)(
            stream=self.stream, group=self.name, silent_for=silent_for
        )

    async def leave(self) -> bool:
        """Remove this consumer, unless it has pending entries: they would be dropped too.

        Returns whether it has left.
        """
        if await self.pending(timedelta(), 1, here=True):
            return False
        await self.redis.xgroup_delconsumer(self.stream, self.name, self.consumer)
        return True


async def read_groups(
    blocking: Redis, groups: Sequence[Group], count: int, block: timedelta | None
) -> dict[Group, list[InFlightEntry]]:
    """Read new entries, at most ``count`` of each stream, by one command.

    The groups have the same name and consumer. Never cancel this, as ``Group.read``.
    """
    by_key = {group.stream.encode(): group for group in groups}
    streams: Any = {group.stream: ">" for group in groups}
    reply: Any = await blocking.xreadgroup(
        groups[0].name,
        groups[0].consumer,
        streams,
        count=count,
        block=None if block is None else _ms(block),
    )
    return {
        by_key[key]: [
            InFlightEntry(by_key[key].tp, entry_id.decode(), fields) for entry_id, fields in entries
        ]
        for key, entries in reply
    }


_NO_ENTRY = f"{2**64 - 1}-0"


async def sign(group: Group) -> None:
    """Show that this consumer lives.

    Redis before 7.2 neither creates a consumer nor notes its time while a read waits, so a read
    that finds nothing does both.
    """
    await group.redis.xreadgroup(group.name, group.consumer, {group.stream: _NO_ENTRY}, count=1)


async def others(group: Group) -> dict[str, int]:
    """Return the idle time (ms) of all other consumers, by name."""
    rows = await group.redis.xinfo_consumers(group.stream, group.name)
    idle = {row["name"].decode(errors="replace"): int(row["idle"]) for row in rows}
    return {name: idle_ms for name, idle_ms in idle.items() if name != group.consumer}


async def consumers_of(groups: Sequence[Group]) -> dict[Group, set[str]]:
    """Return the names of the consumers that have pending entries, by group."""
    async with groups[0].redis.pipeline(transaction=False) as pipeline:
        for group in groups:
            pipeline.xpending(group.stream, group.name)
        replies = await pipeline.execute()
    return {
        group: {row["name"].decode(errors="replace") for row in summary["consumers"]}
        for group, summary in zip(groups, replies, strict=True)
    }


def _fields_of(reply: Any) -> dict[bytes, bytes]:
    """Return the fields of a claimed entry; empty if not claimed, or trimmed (nil on Redis 6.2)."""
    return reply[0][1] or {} if reply else {}


def _chunks(entry_ids: Sequence[str]) -> Iterable[list[Any]]:
    for start in range(0, len(entry_ids), _IDS_PER_COMMAND):
        yield list(entry_ids[start : start + _IDS_PER_COMMAND])


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)


EVENT_FIELD = b"event"
_SEQUENCE_BITS = 20


@dataclass(slots=True, eq=False)
class InFlightEntry:
    """One pending entry whose lease this process holds.

    ``attempt`` counts from 1. ``counted`` says whether Redis' delivery counter includes this
    attempt already. It does for a first read, and for a redelivery from the moment that work on it
    begins, so a crash costs an attempt only for entries that were being processed. ``taken_over``
    says whether another consumer has the lease now, and ``handed_back`` whether the entry is
    overdue in Redis, or will be with the next settlements. ``size_bytes`` is the size of the
    fields, including their names, because the publisher chooses these too. ``span`` is that of the
    work on the entry, and ``acknowledging`` that of its acknowledgement.
    """

    tp: TP
    id: str
    fields: Mapping[bytes, bytes]
    attempt: int = 1
    counted: bool = True
    begun: bool = False
    settled: bool = False
    taken_over: bool = False
    handed_back: bool = False
    span: Span = NO_SPAN
    acknowledging: Span = NO_SPAN
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = sum(len(name) + len(value) for name, value in self.fields.items())

    @property
    def offset(self) -> int:
        """The id as one number, which Faust uses to identify entries."""
        milliseconds, _, sequence = self.id.partition("-")
        return int(milliseconds) << _SEQUENCE_BITS | int(sequence)

    @property
    def event(self) -> bytes:
        """Bytes of the event or, if a publisher omitted that field, all other fields as JSON.

        Nothing of such an entry is lost in the dead letters.
        """
        if EVENT_FIELD in self.fields:
            return self.fields[EVENT_FIELD]
        readable = {
            name.decode(errors="replace"): value.decode(errors="replace")
            for name, value in self.fields.items()
        }
        return json.dumps(readable, ensure_ascii=False).encode()


class InFlightMessage(ConsumerMessage):
    """A Faust message with a reference to its entry."""

    __slots__ = ("entry",)

    def __init__(self, entry: InFlightEntry, generation_id: int) -> None:
        headers = [
            (name.decode(errors="replace"), value)
            for name, value in entry.fields.items()
            if name != EVENT_FIELD
        ]
        offset = entry.offset
        super().__init__(
            topic=entry.tp.topic,
            partition=entry.tp.partition,
            offset=offset,
            timestamp=(offset >> _SEQUENCE_BITS) / 1000,
            timestamp_type=1,
            headers=headers or None,
            key=None,
            value=entry.event,
            checksum=None,
            tp=entry.tp,
            generation_id=generation_id,
        )
        self.entry = entry


def letter_of(
    entry: InFlightEntry, group: str, error: str, detail: str, attempts: int
) -> DeadLetter:
    """Build the dead letter of an entry that a consumer group could not process."""
    return DeadLetter(
        event=entry.event,
        topic=entry.tp.topic,
        partition=entry.tp.partition,
        entry_id=entry.id,
        group=group,
        error=error,
        detail=tellable(detail),
        attempts=attempts,
        first_at=instant_of(int(entry.id.partition("-")[0])),
        last_at=datetime.now(UTC),
        position=_position_of(entry),
        signature=storable_signature(entry.fields),
    )


def _position_of(entry: InFlightEntry) -> int | None:
    try:
        position = LogPosition.of_entry(Topic(entry.tp.topic).lane, entry.tp.partition, entry.id)
        return kept_position(entry.fields, position)
    except (ValueError, MalformedEvent):
        return None
