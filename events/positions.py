"""Log positions, ranks and the keys of documents and streams: one type for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from events.models import Origin
from events.names import Lane, Names, Topic
from runtime.errors import MalformedEvent

__all__ = [
    "LARGEST_SEQUENCE",
    "POSITION_FIELD",
    "DocumentKey",
    "LogPosition",
    "Rank",
    "StreamKey",
    "change_streams",
    "kept_position",
    "rank_of",
]

_SEQUENCE_BITS = 20
LARGEST_SEQUENCE = 2**_SEQUENCE_BITS - 1
_TOKEN = re.compile(r"(live|bulk):([0-9]{1,3}):([0-9]{1,15}-[0-9]{1,10})")

POSITION_FIELD = b"position"


class DocumentKey(NamedTuple):
    """Key of a document in its project; ``agent`` is empty for a shared document."""

    agent: str
    uri: str


class StreamKey(NamedTuple):
    """Topic and partition of one stream."""

    topic: Topic
    partition: int


def change_streams(names: Names) -> list[StreamKey]:
    """Return every stream of changes, the live ones first."""
    return [
        StreamKey(Topic.of_lane(lane), partition)
        for lane in Lane
        for partition in range(names.partitions)
    ]


class LogPosition(NamedTuple):
    """Log position of a change: totally ordered by time, also across lanes.

    ``position`` is a sortable 63-bit number: milliseconds, sequence (20 bits), lane (1 bit). Lanes
    are separate streams, so two entries of one millisecond can have the same id; the live entry
    then counts as the newer.
    """

    position: int
    partition: int

    @classmethod
    def of_entry(cls, lane: Lane, partition: int, entry_id: str) -> LogPosition:
        """Return the position of a stream entry.

        Raises:
            MalformedEvent: the clock of Redis can't have produced the id.
        """
        milliseconds, _, sequence = entry_id.partition("-")
        number = int(milliseconds) << _SEQUENCE_BITS | int(sequence)
        if int(sequence) >> _SEQUENCE_BITS or number >> 62:
            raise MalformedEvent(f"stream entry id {entry_id} is out of range")
        return cls(number << 1 | (lane is Lane.LIVE), partition)

    @classmethod
    def from_token(cls, token: str) -> LogPosition:
        """Inverse of ``token``.

        Raises:
            MalformedEvent: the text is not a token.
        """
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise MalformedEvent(f"not a token: {token[:80]!r}")
        lane, partition, entry_id = match.groups()
        return cls.of_entry(Lane(lane), int(partition), entry_id)

    @property
    def stream(self) -> StreamKey:
        """Stream of the entry."""
        return StreamKey(Topic.of_lane(self.lane), self.partition)

    @property
    def lane(self) -> Lane:
        """Lane of the entry."""
        return Lane.LIVE if self.position & 1 else Lane.BULK

    @property
    def entry_id(self) -> str:
        """Id of the entry in its stream."""
        milliseconds, sequence = divmod(self.position >> 1, 1 << _SEQUENCE_BITS)
        return f"{milliseconds}-{sequence}"

    @property
    def token(self) -> str:
        """Text form that a publisher receives and a query may name as ``min_event``."""
        return f"{self.lane}:{self.partition}:{self.entry_id}"


Rank = tuple[int, int, int]
"""Rank of a change: of two changes of one document, the one with the greater rank wins."""


def rank_of(log_position: LogPosition, origin: Origin | None) -> Rank:
    """Return the rank of a change at a log position.

    A revision is a position too: a source's change counts as of the moment at which its sync began,
    however late it was published. So a publisher that was suspended can't restore an old revision,
    and any two changes can be compared, in any order.
    """
    return log_position.position if origin is None else origin.revision, *log_position


def kept_position(fields: Mapping[bytes, bytes], own: LogPosition) -> int:
    """Return the number of an entry's effective position: its own, or the one that a redrive kept.

    Raises:
        MalformedEvent: the field is not a number, or is newer than the entry itself: with it a
            publisher could overtake every later change of the document.
    """
    text = fields.get(POSITION_FIELD)
    if text is None:
        return own.position
    if not text.isdigit() or len(text) > 19:
        raise MalformedEvent(f"position {text[:40]!r} is not a position")
    if int(text) > own.position:
        raise MalformedEvent(f"position {int(text)} is newer than the entry that names it")
    return int(text)
