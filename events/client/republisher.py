"""Republishing of durable events that are missing from their stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from redis.asyncio import Redis

from events.client.publisher import REMEMBER, Receipt
from events.client.sender import Trace, read_traces
from events.names import ARCHIVER, LogPosition, Names, Topic
from events.outbox import WaitingEvent
from events.server.connection import Headroom, retrying
from events.server.scripts import Republish
from events.streams.groups import reached, read_watermark

__all__ = ["Republishing", "is_lost"]


class Republishing:
    """Checks the events of an outbox against the streams, and republishes them.

    Each method raises Unavailable if Redis can't be reached.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._script = Republish(redis)
        self._headroom = Headroom(redis)

    def leads_somewhere(self, event: WaitingEvent) -> bool:
        """Return whether its stream exists: a publisher may put any partition into the outbox."""
        return 0 <= event.partition < self._names.partitions

    @property
    def may_have_moved(self) -> bool:
        """Return whether an event may belong to another partition than when it was kept."""
        return bool(self._names.raises)

    def home_of(self, project: str, uri: str) -> int:
        """Return the partition in which changes of a document are published now."""
        return self._names.partition_of(project, uri)

    async def archived(self) -> Mapping[str, str]:
        """Return the progress of the archive: entry id by ``lane:partition``."""
        return await read_watermark(self._redis, self._names, ARCHIVER)

    async def traces(self, events: Sequence[WaitingEvent]) -> list[Trace]:
        """Return Redis' records of events, in the order of the events."""
        keys = [self._seen(event) for event in events]
        return await retrying(partial(read_traces, self._redis, keys))

    async def republish(
        self,
        event: WaitingEvent,
        body: bytes,
        position: LogPosition,
        trace: Trace,
        fingerprint: str = "",
    ) -> Receipt:
        """Add an event again at ``position``, unless it was added since it was traced.

        Raises:
            LogFull: Redis is near its memory limit.
        """
        await self._headroom.check()
        token, duplicate = await retrying(
            partial(
                self._script,
                stream=self._names.stream(Topic.of_lane(position.lane), position.partition),
                seen=self._seen(event),
                event=body,
                signature=event.signature,
                fingerprint=fingerprint,
                position=position,
                in_vain=trace.raw,
                remember=REMEMBER,
            )
        )
        return Receipt(token, event.event_id, duplicate)

    def _seen(self, event: WaitingEvent) -> str:
        return self._names.seen(event.project, event.event_id, event.partition, event.signature)


def is_lost(trace: Trace, archived: Mapping[str, str]) -> bool:
    """Return whether an event that waits for the archive will never reach it.

    ``archived`` must have been read before the event was seen waiting. Then an entry that the
    archive has passed is not the entry that the archive took the event from.
    """
    return trace.entry is None or reached(archived, trace.entry)
