"""Publishing again what was published durably and isn't in its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis.asyncio import Redis

from events.headroom import Headroom
from events.names import ARCHIVER, Names, Position, Topic
from events.outbox import WaitingEvent
from events.publishing import REMEMBER, Receipt
from events.retrying import retrying
from events.scripts import Republish
from events.watermark import reached, read_watermark
from runtime.errors import MalformedEvent

__all__ = ["Republishing", "Trace", "is_lost"]


@dataclass(frozen=True, slots=True)
class Trace:
    """What Redis remembers of an event: its token and the token of the entry that holds it.

    ``raw`` is empty for an event that it doesn't know; the rest is None then, and where nobody can
    read what it remembers.
    """

    raw: bytes = b""
    token: str | None = None
    entry: str | None = None

    @classmethod
    def parse(cls, raw: bytes | None) -> Trace:
        """From what publishing has left; every publisher may leave anything else there."""
        if raw is None:
            return cls()
        token, _, entry_id = raw.decode(errors="replace").partition(" ")
        entry = token.rpartition(":")[0] + f":{entry_id}" if entry_id else token
        try:
            for one in (token, entry):
                Position.from_token(one)
        except MalformedEvent:
            return cls(raw)
        return cls(raw, token, entry)


class Republishing:
    """The streams as seen from an outbox.

    Each method raises Unavailable when Redis can't be reached.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._script = Republish(redis)
        self._headroom = Headroom(redis)

    def leads_somewhere(self, event: WaitingEvent) -> bool:
        """Whether there is a stream for it: every publisher may put anything into the outbox."""
        return 0 <= event.partition < self._names.partitions

    async def archived(self) -> Mapping[str, str]:
        """How far the archive has come: entry id by ``lane:partition``."""
        return await read_watermark(self._redis, self._names, ARCHIVER)

    async def traces(self, events: Sequence[WaitingEvent]) -> list[Trace]:
        """What Redis knows of events, in their order."""
        keys = [self._seen(event) for event in events]
        return [Trace.parse(raw) for raw in await retrying(partial(self._read, keys))]

    async def republish(
        self, event: WaitingEvent, body: bytes, place: Position, trace: Trace
    ) -> Receipt:
        """Add an event again, to stand at ``place``, unless it came in since it was traced.

        Raises:
            LogFull: Redis is near its memory limit.
        """
        await self._headroom.check()
        token, duplicate = await retrying(
            partial(
                self._script,
                stream=self._names.stream(Topic.of_lane(place.lane), place.partition),
                seen=self._seen(event),
                event=body,
                signature=event.signature,
                place=place,
                in_vain=trace.raw,
                remember=REMEMBER,
            )
        )
        return Receipt(token, event.event_id, duplicate)

    async def _read(self, keys: Sequence[str]) -> Sequence[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.get(key)
            return await pipeline.execute()

    def _seen(self, event: WaitingEvent) -> str:
        return self._names.seen(event.project, event.event_id, event.partition, event.signature)


def is_lost(trace: Trace, archived: Mapping[str, str]) -> bool:
    """Whether an event that still waits for the archive will never come to it.

    ``archived`` must have been read before the event was seen to wait: then an entry that the
    archive has passed isn't where it took the event from.
    """
    return trace.entry is None or reached(archived, trace.entry)
