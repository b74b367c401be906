"""Repair of lost requests for vectors, after Redis was emptied or a stream was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.models import DocumentChunked, DocumentChunkedData
from events.names import GROUPS, Lane, LogPosition, Names, Topic
from events.streams.backlog import read_backlog
from events.streams.chunked import ChunkedStreams
from events.streams.trim import trim_chunked
from runtime.errors import HeadraceError
from runtime.lifespan import IdlePace
from store.documents.pending import PendingDocument, PendingVectors
from store.generations.catalog import Generation

__all__ = ["VectorRequests", "request_for"]

log = structlog.get_logger(__name__)

_LEASES = 2
"""Leases after which a request is overdue: another worker would have taken it over by then."""
_MOST_DOCUMENTS = 1_000
_STREAMS = {topic: GROUPS[topic] for topic in (Topic.CHUNKED_LIVE, Topic.CHUNKED_BULK)}


class VectorRequests:
    """Keeps the streams of requests short and complete."""

    def __init__(self, redis: Redis, names: Names, pending: PendingVectors) -> None:
        self._redis = redis
        self._names = names
        self._pending = pending
        self._streams = ChunkedStreams(redis, names)

    async def run(
        self, stop: asyncio.Event, lease: timedelta, count: Callable[[], int] = lambda: 0
    ) -> None:
        """Trim and repair every two leases until ``stop`` is set; failures are logged.

        It is done less often while ``count``, that of this worker's events, stays the same.
        """
        overdue = _LEASES * lease
        pace = IdlePace(overdue, count)
        while not stop.is_set():
            try:
                await trim_chunked(self._redis, self._names)
                await self.repair(overdue)
            except (HeadraceError, RedisError) as error:
                log.warning("vector_requests.failed", error=str(error))
            await pace.pause(stop)

    async def repair(self, older_than: timedelta) -> int:
        """Request vectors that no entry of the streams asks for; return the number of documents.

        Entries that are not acknowledged may request any document that became pending later than
        the oldest of them, or up to ``older_than`` before.

        Raises:
            Unavailable: Redis or Postgres cannot be reached.
        """
        if not await self._pending.are_any():
            return 0
        backlog = await read_backlog(self._redis, self._names, _STREAMS)
        ages = [stream.oldest_unacknowledged or timedelta() for stream in backlog]
        age_seconds = (max(ages) + older_than).total_seconds()
        overdue = await self._pending.overdue(age_seconds, _MOST_DOCUMENTS)
        for project, (generation, documents) in overdue.items():
            await self.request(project, generation, documents)
        return sum(len(documents) for _, documents in overdue.values())

    async def request(
        self, project: str, generation: Generation, documents: Iterable[PendingDocument]
    ) -> None:
        """Request the vectors of documents from the embedders.

        Raises:
            Unavailable: Redis cannot be reached.
        """
        events = [request_for(project, generation, document) for document in documents]
        await self._streams.publish(events, Lane.BULK)
        log.info("vectors.requested_again", project=project, documents=len(events))


def request_for(project: str, generation: Generation, document: PendingDocument) -> DocumentChunked:
    """Build the event that requests the vectors of a document."""
    return DocumentChunked(
        data=DocumentChunkedData(
            event_id=document.event_id,
            token=LogPosition(document.position, document.partition).token,
            project=project,
            uri=document.uri,
            agent=document.agent or None,
            generation=generation.id,
            chunks=document.chunks,
            published_at=document.published_at,
        )
    )
