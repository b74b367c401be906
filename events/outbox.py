"""Outbox of durable events: they are kept until the archive has them, even if Redis is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from events.names import LARGEST_SEQUENCE, Lane, LogPosition

__all__ = ["AssignedPosition", "KeptEvent", "Outbox", "WaitingEvent", "derived_position"]

_DERIVED = (LARGEST_SEQUENCE + 1) // 2
"""Sequences from here on are free: Redis would have to add 524,288 entries in a millisecond."""


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event as the outbox keeps it; ``signature`` is empty if it has none.

    ``fingerprint`` is that of its change, and ``uri`` that of its document. ``number`` is that of
    the partitions by which ``partition`` was chosen. These are not stored.
    """

    project: str
    event_id: str
    lane: Lane
    partition: int
    body: bytes
    signature: str = ""
    fingerprint: str = ""
    uri: str = ""
    number: int = 1


class AssignedPosition(NamedTuple):
    """The position that an event got in the log."""

    project: str
    event_id: str
    token: str


class Outbox(Protocol):
    """Storage of events before they are added to the log.

    The archive removes each event in the transaction in which it records it.
    """

    async def keep(self, events: Sequence[KeptEvent]) -> None:
        """Store events durably, in their order; one that is stored already stays unchanged."""

    async def assign(self, assigned: Sequence[AssignedPosition]) -> None:
        """Record the log positions of events; events that have been removed are skipped."""


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event in the outbox, without its body.

    ``position`` is its number in the log. It is None if unknown: the event may not have reached the
    log. ``created_at`` is by Postgres' clock; ``number`` counts all events that were ever stored.
    """

    project: str
    event_id: str
    lane: Lane
    partition: int
    position: int | None
    number: int
    created_at: datetime
    signature: str = ""

    @property
    def log_position(self) -> LogPosition:
        """Log position of the event, or a position derived from the time when it was stored.

        No other entry of the log can have the derived position, and events that were stored one
        after the other keep that order.
        """
        if self.position is not None and self.position >= 0:
            return LogPosition(self.position, self.partition)
        milliseconds = int(self.created_at.timestamp() * 1000)
        return derived_position(self.lane, self.partition, milliseconds, self.number)


def derived_position(lane: Lane, partition: int, milliseconds: int, number: int) -> LogPosition:
    """Return a log position of this time that no entry of the log can have.

    ``number`` distinguishes positions of one millisecond.
    """
    return LogPosition.of_entry(lane, partition, f"{milliseconds}-{_DERIVED + number % _DERIVED}")
