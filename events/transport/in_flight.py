"""In-flight entries of a stream in this process, as Faust's messages and as dead letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from faust.types import TP, ConsumerMessage

from events.names import Topic
from events.positions import LogPosition, kept_position
from events.streams.dead_letters import DeadLetter, instant_of, storable_signature, tellable
from runtime.errors import MalformedEvent

__all__ = ["EVENT_FIELD", "InFlightEntry", "InFlightMessage", "letter_of"]

EVENT_FIELD = b"event"
_SEQUENCE_BITS = 20


@dataclass(slots=True, eq=False)
class InFlightEntry:
    """One pending entry whose lease this process holds.

    ``attempt`` counts from 1. ``counted`` says whether Redis' delivery counter includes this
    attempt already. It does for a first read, and for a redelivery from the moment that work on it
    begins, so a crash costs an attempt only for entries that were being processed. ``taken_over``
    says whether another consumer has the lease now. ``size_bytes`` is the size of the fields,
    including their names, because the publisher chooses these too.
    """

    tp: TP
    id: str
    fields: Mapping[bytes, bytes]
    attempt: int = 1
    counted: bool = True
    begun: bool = False
    settled: bool = False
    taken_over: bool = False
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
