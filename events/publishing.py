"""Publishing changes: each event once, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from events.models import ContentReference, DocumentChanged, content_hash
from events.names import Lane, Names, Topic
from events.retrying import PATIENCE, retrying
from events.scripts import PublishOnce
from runtime.errors import LimitExceeded, LogFull

__all__ = ["INLINE_LIMIT_BYTES", "ContentStore", "Publisher", "Receipt"]

INLINE_LIMIT_BYTES = 256 * 2**10
_REMEMBER = timedelta(hours=24)
_CHUNK_EVENTS = 256
_CHUNK_BYTES = 4 * 2**20
_FULL = 0.9
_HEADROOM_SECONDS = 1.0


class ContentStore(Protocol):
    """Where content lies that is too big for an event."""

    async def put(self, project: str, content: str) -> ContentReference:
        """Store content under its hash; storing it again changes nothing."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a publisher gets.

    ``token`` names the change's place in the log; a query may ask to see it (``min_event``).
    ``duplicate``: the event id was published before, perhaps by an earlier try of this very call.
    """

    token: str
    event_id: str
    duplicate: bool


@dataclass(frozen=True, slots=True)
class _Outgoing:
    event_id: str
    body: bytes
    partition: int
    seen: str


class Publisher:
    """Publishes changes idempotently: an event id is added once within 24 hours.

    Events of one call keep their order within a partition. A call that raises may have published
    some of its events; publishing all of them again is safe.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        *,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        content_store: ContentStore | None = None,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._redis = redis
        self._names = names
        self._inline_limit_bytes = inline_limit_bytes
        self._content_store = content_store
        self._script = PublishOnce(redis)
        self._headroom = _Headroom(redis, patience)
        self._patience = patience

    async def publish(self, event: DocumentChanged, lane: Lane = Lane.LIVE) -> Receipt:
        """Publish one change.

        Raises:
            Unavailable: Redis could not be reached for as long as ``patience``.
            LogFull: Redis is near its memory limit.
            LimitExceeded: the content is over the inline limit and there is no content store.
        """
        return (await self.publish_many([event], lane))[0]

    async def publish_many(
        self, changes: Iterable[DocumentChanged], lane: Lane = Lane.LIVE
    ) -> list[Receipt]:
        """Publish changes, up to 256 of them (or 4 MiB) per round trip; receipts in their order.

        Raises:
            Unavailable, LogFull, LimitExceeded: as ``publish``.
        """
        receipts: list[Receipt] = []
        chunk: list[_Outgoing] = []
        size_bytes = 0
        for change in changes:
            outgoing = await self._outgoing(change)
            if len(chunk) == _CHUNK_EVENTS or size_bytes + len(outgoing.body) > _CHUNK_BYTES:
                receipts += await self._publish_chunk(chunk, lane)
                chunk, size_bytes = [], 0
            chunk.append(outgoing)
            size_bytes += len(outgoing.body)
        return receipts + await self._publish_chunk(chunk, lane)

    async def _publish_chunk(self, chunk: Sequence[_Outgoing], lane: Lane) -> list[Receipt]:
        if not chunk:
            return []
        await self._headroom.check()
        replies = await retrying(partial(self._send, chunk, lane), self._patience)
        return [
            Receipt(token.decode(), outgoing.event_id, bool(duplicate))
            for outgoing, (token, duplicate) in zip(chunk, replies, strict=True)
        ]

    async def _send(self, chunk: Sequence[_Outgoing], lane: Lane) -> list[Any]:
        replies = await self._call(chunk, lane)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._script.load()
            replies = await self._call(chunk, lane)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _call(self, chunk: Sequence[_Outgoing], lane: Lane) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for outgoing in chunk:
                self._script.queue(
                    pipeline,
                    stream=self._names.stream(Topic.of_lane(lane), outgoing.partition),
                    seen=outgoing.seen,
                    event=outgoing.body,
                    token_prefix=f"{lane}:{outgoing.partition}:",
                    remember=_REMEMBER,
                )
            return await pipeline.execute(raise_on_error=False)

    async def _outgoing(self, change: DocumentChanged) -> _Outgoing:
        data = change.data
        partition = self._names.partition_of(data.project, data.uri)
        return _Outgoing(
            event_id=change.id,
            body=(await self._by_reference_if_big(change)).to_bytes(),
            partition=partition,
            seen=self._names.seen(data.project, change.id, partition),
        )

    async def _by_reference_if_big(self, change: DocumentChanged) -> DocumentChanged:
        data = change.data
        size_bytes = 0 if data.content is None else len(data.content.encode())
        if data.content is None or size_bytes <= self._inline_limit_bytes:
            return change
        if self._content_store is None:
            raise LimitExceeded(
                f"{data.uri}: {size_bytes:,} bytes don't fit into an event (at most "
                f"{self._inline_limit_bytes:,}): publish with a content store, or as content_ref"
            )
        update = {
            "content": None,
            "content_ref": await self._content_store.put(data.project, data.content),
            "content_hash": content_hash(data.content),
        }
        return change.model_copy(update={"data": data.model_copy(update=update)})


class _Headroom:
    """Refuses new work while Redis still has room for what the workers must write."""

    def __init__(self, redis: Redis, patience: timedelta) -> None:
        self._redis = redis
        self._patience = patience
        self._checked_at = -math.inf

    async def check(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._checked_at + _HEADROOM_SECONDS:
            return
        memory = await retrying(partial(self._redis.info, "memory"), self._patience)
        limit_bytes = int(memory["maxmemory"])
        if limit_bytes and memory["used_memory"] > _FULL * limit_bytes:
            raise LogFull(
                f"Redis is above {_FULL:.0%} of its memory limit of {limit_bytes:,} bytes: "
                "let the workers catch up, or raise maxmemory"
            )
        self._checked_at = now
