"""Dead letters: events that could not be processed, with the reason; list, redrive, drop."""

from __future__ import annotations

import heapq
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Self

from redis.asyncio import Redis
from redis.typing import EncodableT, FieldT

from events.names import DEAD_SUFFIX, GROUPS, LogPosition, Names, Topic
from events.server.connection import redis_errors
from events.server.scripts import Redrive
from events.signatures import LONGEST_SIGNATURE, SIGNATURE_FIELD
from events.streams.entries import Entry, entries_of, order
from runtime.errors import MalformedEvent, NotFound, UsageError
from runtime.secrets import masked

__all__ = ["DeadLetter", "DeadLetters", "instant_of", "storable", "storable_signature", "tellable"]

_DETAIL_CHARACTERS = 4000
_ID = re.compile(r"([a-z.]+)/([0-9]{1,3})/([0-9]{1,15}-[0-9]{1,15})")
_PAGE = 100


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """One event that could not be processed, with the reason.

    ``entry_id`` is the event's id in its own stream, ``dead_entry_id`` that of this letter in the
    dead-letter stream (empty until it is stored). ``error`` is the error's code. ``position`` is
    the log position that a redrive keeps; it is None if the event is not a change. ``signature`` is
    empty if the event has none.
    """

    event: bytes
    topic: str
    partition: int
    entry_id: str
    group: str
    error: str
    detail: str
    attempts: int
    first_at: datetime
    last_at: datetime
    position: int | None = None
    signature: str = ""
    dead_entry_id: str = ""

    @property
    def id(self) -> str:
        """Id of this letter for operators: ``<topic>/<partition>/<entry id>``."""
        return f"{self.topic}/{self.partition}/{self.dead_entry_id}"

    @property
    def project(self) -> str:
        """Project that the event names, or '' if none can be read."""
        try:
            project = json.loads(self.event)["data"]["project"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return ""
        return storable(project) if isinstance(project, str) else ""

    @property
    def token(self) -> str | None:
        """Token of the change, which a redrive keeps; None if the event is not a change."""
        return None if self.position is None else LogPosition(self.position, self.partition).token

    def to_fields(self) -> dict[FieldT, EncodableT]:
        """Fields of the entry in the dead-letter stream."""
        fields: dict[FieldT, EncodableT] = {
            "event": self.event,
            "topic": self.topic,
            "partition": self.partition,
            "entry_id": self.entry_id,
            "group": self.group,
            "error": self.error,
            "detail": self.detail[:_DETAIL_CHARACTERS],
            "attempts": self.attempts,
            "first_at": self.first_at.astimezone(UTC).isoformat(),
            "last_at": self.last_at.astimezone(UTC).isoformat(),
        }
        position = self._kept_position()
        if position is not None:
            fields["position"] = position
        if self.signature:
            fields["signature"] = self.signature
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[bytes, bytes], dead_entry_id: str = "") -> Self:
        """Inverse of ``to_fields``.

        Raises:
            KeyError, ValueError, OverflowError: ``to_fields`` can't have made these fields.
        """
        text = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in fields.items()
            if key != b"event"
        }
        return cls(
            event=fields[b"event"],
            topic=text["topic"],
            partition=int(text["partition"]),
            entry_id=text["entry_id"],
            group=text["group"],
            error=text["error"],
            detail=text["detail"],
            attempts=int(text["attempts"]),
            first_at=datetime.fromisoformat(text["first_at"]).astimezone(UTC),
            last_at=datetime.fromisoformat(text["last_at"]).astimezone(UTC),
            position=int(text["position"]) if "position" in text else None,
            signature=text.get("signature", ""),
            dead_entry_id=dead_entry_id,
        )

    def _kept_position(self) -> int | None:
        if self.position is not None:
            return self.position
        try:
            topic = Topic(self.topic)
            if not topic.carries_changes:
                return None
            return LogPosition.of_entry(topic.lane, self.partition, self.entry_id).position
        except (ValueError, MalformedEvent):
            return None


@dataclass(frozen=True)
class _Location:
    """Location of a letter: topic, partition, entry id."""

    topic: Topic
    partition: int
    dead_entry_id: str

    @classmethod
    def parse(cls, letter_id: str, names: Names) -> _Location:
        match = _ID.fullmatch(letter_id)
        if match is None or match[1] not in GROUPS or int(match[2]) >= names.partitions:
            raise _unknown(letter_id)
        return cls(Topic(match[1]), int(match[2]), match[3])


@dataclass
class _Reader:
    """Entries of one stream that are read but not yielded; ``number`` is its rank."""

    number: int
    stream: _Location
    entries: deque[Entry] = field(default_factory=deque)

    @property
    def head(self) -> tuple[int, int, int]:
        """Sort key of the next entry: the newest entry has the smallest."""
        milliseconds, sequence = order(self.entries[0].id)
        return -milliseconds, -sequence, self.number


def storable(text: str) -> str:
    """Remove characters that UTF-8 or Postgres can't hold: errors quote arbitrary input."""
    return text.encode(errors="replace").decode().replace("\x00", "")


def tellable(detail: str) -> str:
    """Return an error's detail in a form that publishers may read: storable, without secrets."""
    return storable(masked(detail))


def storable_signature(fields: Mapping[bytes, bytes]) -> str:
    """Return the signature among an entry's fields for its letter, cut to the longest valid one."""
    return storable(fields.get(SIGNATURE_FIELD, b"")[:LONGEST_SIGNATURE].decode(errors="replace"))


def instant_of(milliseconds: float) -> datetime:
    """Return the time of an entry; ids that were chosen by hand may exceed the calendar."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


class DeadLetters:
    """The dead-letter streams of one deployment.

    Each method raises Unavailable when Redis can't be reached.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._redrive = Redrive(redis)

    async def list(self, limit: int = 100, topic: str | None = None) -> list[DeadLetter]:
        """Return the newest letters first, of all topics or of one.

        Raises:
            UsageError: the topic does not exist.
        """
        letters: list[DeadLetter] = []
        if limit > 0:
            async for letter in self.newest(topic):
                letters.append(letter)
                if len(letters) == limit:
                    break
        return letters

    async def newest(
        self, topic: str | None = None, before: str | None = None
    ) -> AsyncIterator[DeadLetter]:
        """Yield all letters, the newest first; letters of one moment in the order of the topics.

        ``before``: id of a letter, stored or not; only later ones in this order are yielded.

        Raises:
            UsageError: the topic does not exist, or ``before`` is not an id.
        """
        streams = self._streams(topic)
        limits = self._limits(streams, before)
        pages = await self._pages(streams, limits)
        readers = [
            _Reader(number, stream, deque(page))
            for number, (stream, page) in enumerate(zip(streams, pages, strict=True))
        ]
        heap = [reader.head for reader in readers if reader.entries]
        heapq.heapify(heap)
        while heap:
            reader = readers[heapq.heappop(heap)[-1]]
            entry = reader.entries.popleft()
            yield _letter(reader.stream, entry)
            if not reader.entries:
                [page] = await self._pages([reader.stream], [f"({entry.id}"])
                reader.entries.extend(page)
            if reader.entries:
                heapq.heappush(heap, reader.head)

    async def show(self, letter_id: str) -> DeadLetter:
        """Return one letter.

        Raises:
            NotFound: the letter does not exist.
        """
        location = _Location.parse(letter_id, self._names)
        entry_id = location.dead_entry_id
        with redis_errors():
            reply = await self._redis.xrange(self._dead_key(location), entry_id, entry_id)
        for entry in entries_of(reply):
            return _letter(location, entry)
        raise _unknown(letter_id)

    async def redrive(self, letter_id: str) -> str:
        """Put the event back into its stream at its former position; return its new entry id.

        Both happen in one step, so that a retry after a lost reply can't add it twice.

        Raises:
            NotFound: the letter does not exist, or is redriven already.
        """
        location = _Location.parse(letter_id, self._names)
        entry_id = await self._put_back(location)
        if entry_id is None:
            raise _unknown(letter_id)
        return entry_id

    async def redrive_all(self, topic: str | None = None) -> int:
        """Redrive all current dead letters, oldest first; return their number.

        Letters that arrive later wait, or a poison event would be redriven for ever.
        """
        letter_ids = [letter.id async for letter in self.newest(topic)]
        locations = [_Location.parse(letter_id, self._names) for letter_id in reversed(letter_ids)]
        return sum([await self._put_back(location) is not None for location in locations])

    async def drop(self, letter_id: str) -> None:
        """Delete one letter permanently.

        Raises:
            NotFound: the letter does not exist.
        """
        location = _Location.parse(letter_id, self._names)
        with redis_errors():
            dropped = await self._redis.xdel(self._dead_key(location), location.dead_entry_id)
        if not dropped:
            raise _unknown(letter_id)

    def _limits(self, streams: Sequence[_Location], before: str | None) -> Sequence[str]:
        """Return the greatest id to read of each stream; ``(`` excludes the id itself."""
        if before is None:
            return ["+"] * len(streams)
        last = _Location.parse(before, self._names)
        ranks = {
            (stream.topic, stream.partition): n for n, stream in enumerate(self._streams(None))
        }
        rank = ranks[last.topic, last.partition]
        return [
            f"{'' if ranks[stream.topic, stream.partition] > rank else '('}{last.dead_entry_id}"
            for stream in streams
        ]

    async def _pages(
        self, streams: Sequence[_Location], limits: Sequence[str]
    ) -> Sequence[Sequence[Entry]]:
        with redis_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for stream, limit in zip(streams, limits, strict=True):
                    pipeline.xrevrange(self._dead_key(stream), max=limit, count=_PAGE)
                replies = await pipeline.execute()
        return [entries_of(reply) for reply in replies]

    async def _put_back(self, location: _Location) -> str | None:
        source = self._names.stream(location.topic, location.partition)
        with redis_errors():
            return await self._redrive(self._dead_key(location), source, location.dead_entry_id)

    def _dead_key(self, location: _Location) -> str:
        return self._names.dead(location.topic, location.partition)

    def _streams(self, topic: str | None) -> Sequence[_Location]:
        if topic is not None and topic.removesuffix(DEAD_SUFFIX) not in GROUPS:
            raise UsageError(f"there is no topic {topic[:80]!r}", f"use one of {', '.join(GROUPS)}")
        topics = list(GROUPS) if topic is None else [Topic(topic.removesuffix(DEAD_SUFFIX))]
        return [
            _Location(name, partition, "")
            for name in topics
            for partition in range(self._names.partitions)
        ]


def _letter(location: _Location, entry: Entry) -> DeadLetter:
    """Parse a letter; an entry that no worker wrote is returned too, and hides no other letter."""
    try:
        letter = DeadLetter.from_fields(entry.fields, entry.id)
    except (KeyError, ValueError, OverflowError):
        added_at = instant_of(order(entry.id)[0])
        letter = DeadLetter(
            event=entry.fields.get(b"event", b""),
            topic="",
            partition=0,
            entry_id="",
            group="",
            error="Unknown",
            detail="this entry was not written by a worker",
            attempts=0,
            first_at=added_at,
            last_at=added_at,
            dead_entry_id=entry.id,
        )
    return replace(letter, topic=location.topic, partition=location.partition)


def _unknown(letter_id: str) -> NotFound:
    return NotFound(f"dead letter {letter_id[:80]!r} does not exist", "see `headrace dead list`")
