"""The streams of documents whose chunks wait for vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from redis.asyncio import Redis

from events.models import DocumentChunked
from events.names import Lane, LogPosition, Names, Topic
from events.server.connection import retrying
from runtime import traces

__all__ = ["ChunkedStreams"]


class ChunkedStreams:
    """Publishes ``document.chunked`` for the embedders, at least once per change."""

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names

    async def publish(self, events: Sequence[DocumentChunked], lane: Lane) -> None:
        """Add events in one round trip, each to the partition of its token.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
            LogFull: Redis is at its memory limit.
        """
        if not events:
            return
        topic = Topic.of_chunked(lane)
        attributes = {
            **traces.messaging(topic, "publish"),
            "messaging.batch.message_count": len(events),
        }
        with traces.child(f"publish {topic}", "producer", attributes=attributes):
            await retrying(partial(self._add, events, topic))

    async def _add(self, events: Sequence[DocumentChunked], topic: Topic) -> None:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for event in events:
                partition = LogPosition.from_token(event.data.token).partition
                pipeline.xadd(self._names.stream(topic, partition), {"event": event.to_bytes()})
            await pipeline.execute()
