"""Events that shall outlive Redis: kept in an outbox until the archive has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from events.names import LARGEST_SEQUENCE, Lane, Position

__all__ = ["KeptEvent", "Outbox", "Placed", "WaitingEvent"]

_DERIVED = (LARGEST_SEQUENCE + 1) // 2
"""No entry has a sequence from here on: Redis would have to add 524,288 in a millisecond."""


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event as the outbox keeps it; ``signature`` is empty where it has none."""

    project: str
    event_id: str
    lane: Lane
    partition: int
    body: bytes
    signature: str = ""


class Placed(NamedTuple):
    """Where an event came to stand in the log."""

    project: str
    event_id: str
    token: str


class Outbox(Protocol):
    """Where a publisher keeps events before they go into the log.

    The archive takes each one out in the transaction in which it enters the event.
    """

    async def keep(self, events: Sequence[KeptEvent]) -> None:
        """Keep events for good, in their order; one that is kept already stays as it is."""

    async def place(self, placed: Sequence[Placed]) -> None:
        """Note where events came to stand; those that are taken out by now are passed over."""


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event in the outbox, without its body.

    ``position``: its number in the log as far as that is known; None: perhaps it never came there.
    ``created_at`` is by Postgres' clock; ``number`` counts the events that were ever kept.
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
    def place(self) -> Position:
        """Its place in the log, or one of its own at the time when it was kept.

        The place is free, whatever else came into the log, and events that were kept one after
        the other stand in that order.
        """
        if self.position is not None and self.position >= 0:
            return Position.from_number(self.position, self.partition)
        milliseconds = int(self.created_at.timestamp() * 1000)
        return Position(
            self.lane, self.partition, f"{milliseconds}-{_DERIVED + self.number % _DERIVED}"
        )
