"""In-flight entries of a stream in this process, and the window that bounds them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from faust.types import TP, ConsumerMessage

__all__ = ["EVENT_FIELD", "InFlightEntry", "InFlightMessage", "Window"]

EVENT_FIELD = b"event"
_SEQUENCE_BITS = 20
_MOST_AT_ONCE = 128
"""Most entries of one read: their size is known only after they have arrived."""

_FADING = 0.98


@dataclass(slots=True, eq=False)
class InFlightEntry:
    """One pending entry whose lease this process holds.

    ``attempt`` counts from 1. ``counted`` says whether Redis' delivery counter includes this
    attempt already. It does for a first read, and for a redelivery from the moment that work on it
    begins, so a crash costs an attempt only for entries that were being processed.
    """

    tp: TP
    id: str
    fields: Mapping[bytes, bytes]
    attempt: int = 1
    counted: bool = True
    begun: bool = False
    settled: bool = False
    lost: bool = False

    @property
    def offset(self) -> int:
        """The id as one number, which Faust uses to identify entries."""
        milliseconds, _, sequence = self.id.partition("-")
        return int(milliseconds) << _SEQUENCE_BITS | int(sequence)

    @property
    def size_bytes(self) -> int:
        """Size of the fields, including their names, because the publisher chooses these too."""
        return sum(len(name) + len(value) for name, value in self.fields.items())

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


class Window:
    """Bounds the number and bytes of one topic's in-flight entries, over all its partitions.

    A read of Redis can't be limited in bytes, so the number of entries that fit is estimated from
    the largest of the recent ones.
    """

    def __init__(self, limit: int, limit_bytes: int = 32 * 2**20) -> None:
        self.limit = limit
        self.limit_bytes = limit_bytes
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._large = 0.0
        self._closed = False
        self._changed = asyncio.Event()

    async def room(self) -> int:
        """Wait until half of the window is free; return how many entries fit, 0 once it is closed.

        Refilling by halves makes reads few and large.
        """
        while not self._half_free() and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        if self._closed:
            return 0
        fit = int((self.limit_bytes - self.in_flight_bytes) / max(1.0, self._large))
        return min(self.limit - self.in_flight, _MOST_AT_ONCE, max(1, fit))

    def enter(self, size_bytes: int = 0) -> None:
        """Add one entry."""
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._large = max(size_bytes, _FADING * self._large)

    def leave(self, size_bytes: int = 0) -> None:
        """Remove one entry."""
        self.free_bytes(size_bytes)
        self.free_slot()

    def free_bytes(self, size_bytes: int) -> None:
        """Subtract the bytes of an entry that is no longer in memory."""
        self.in_flight_bytes -= size_bytes
        self._changed.set()

    def free_slot(self, after: timedelta = timedelta()) -> None:
        """Remove one entry from the count, at once or later.

        An entry that waits for a retry stays counted: while a database is down, a worker then holds
        one window of failed events, not the whole backlog.
        """
        if after:
            asyncio.get_running_loop().call_later(after.total_seconds(), self.free_slot)
            return
        self.in_flight -= 1
        self._changed.set()

    def _half_free(self) -> bool:
        has_room = self.limit - self.in_flight >= max(1, self.limit // 2)
        return has_room and 2 * self.in_flight_bytes <= self.limit_bytes

    def close(self) -> None:
        """Admit no more entries, and end every wait for room."""
        self._closed = True
        self._changed.set()
