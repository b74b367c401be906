"""Streams of the outcomes of changes, which publishers can follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from redis.asyncio import Redis

from events.deployment import follow_stamp
from events.models import DocumentEmbedded, DocumentIndexed, DocumentRejected, parse_event
from events.names import LogPosition, Names, Topic
from events.server.connection import retrying
from events.streams.entries import Entry, entries_of
from runtime import traces
from runtime.errors import MalformedEvent

__all__ = ["Outcome", "OutcomeEntry", "Outcomes"]

Outcome = DocumentIndexed | DocumentEmbedded | DocumentRejected
_KEEP_OUTCOMES = 100_000
_MOST_READS = 32
"""Limit on concurrent reads: each has its own connection, and any number of calls may follow."""

_CROWDED_BLOCK = timedelta(milliseconds=100)
"""Longest wait of one read while others wait for a connection."""

log = logging.getLogger(__name__)


class OutcomeEntry(NamedTuple):
    """An outcome and its entry id; ``outcome`` is None if the entry holds something else."""

    entry_id: str
    outcome: Outcome | None


class Outcomes:
    """The outcome streams: about the latest 100,000 outcomes of each partition.

    Each outcome is sent at least once: after a worker died behind its commit, it is sent again.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._reads = asyncio.Semaphore(_MOST_READS)

    async def publish(self, outcomes: Sequence[Outcome]) -> None:
        """Send outcomes in one round trip; each goes to the partition of its token.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
            LogFull: Redis is at its memory limit.
        """
        if not outcomes:
            return
        attributes = {
            **traces.messaging(Topic.OUTCOME, "publish"),
            "messaging.batch.message_count": len(outcomes),
        }
        with traces.child(f"publish {Topic.OUTCOME}", "producer", attributes=attributes):
            await retrying(partial(self._add, outcomes))

    async def _add(self, outcomes: Sequence[Outcome]) -> None:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for outcome in outcomes:
                partition = LogPosition.from_token(outcome.data.token).partition
                pipeline.xadd(
                    self._names.stream(Topic.OUTCOME, partition),
                    {"event": outcome.to_bytes()},
                    maxlen=_KEEP_OUTCOMES,
                    approximate=True,
                )
            await pipeline.execute()

    @property
    def partitions(self) -> int:
        """Number of outcome streams."""
        return self._names.partitions

    async def follow_raise(self) -> None:
        """Use the number of partitions of the deployment, in case it was raised.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
        """
        async with self._reads:
            await retrying(partial(follow_stamp, self._redis, self._names))

    async def clock(self) -> int:
        """Return the time of Redis in milliseconds.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
        """
        async with self._reads:
            seconds, microseconds = await retrying(self._redis.time)
        return seconds * 1000 + microseconds // 1000

    async def read_all(
        self, after: Mapping[int, str], *, limit: int = 500, block: timedelta | None = None
    ) -> dict[int, list[OutcomeEntry]]:
        """Read outcomes after an entry id of each partition, oldest first, in one command.

        A partition without new outcomes (within ``block``) is absent. ``limit`` applies to each
        partition. ``block`` is at most ``LONGEST_BLOCK``, and needs a blocking connection.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
        """
        if block is not None and self._reads.locked():
            block = min(block, _CROWDED_BLOCK)
        milliseconds = None if block is None else max(1, int(block.total_seconds() * 1000))
        partitions = {
            self._names.stream(Topic.OUTCOME, partition).encode(): partition for partition in after
        }
        streams: Any = {key: after[partition] for key, partition in partitions.items()}
        read = partial(self._redis.xread, streams, count=limit, block=milliseconds)
        async with self._reads:
            reply: Any = await retrying(read)
        return {
            partitions[key]: [_outcome_entry(entry) for entry in entries_of(entries)]
            for key, entries in reply or ()
        }


def _outcome_entry(entry: Entry) -> OutcomeEntry:
    return OutcomeEntry(entry.id, _outcome_of(entry))


def _outcome_of(entry: Entry) -> Outcome | None:
    """Parse an outcome; returns None for other entries, which must not stop every reader."""
    try:
        event = parse_event(entry.fields.get(b"event", b""))
    except MalformedEvent as error:
        log.warning("outcomes.malformed: entry %s: %s", entry.id, error)
        return None
    return event if isinstance(event, Outcome) else None
