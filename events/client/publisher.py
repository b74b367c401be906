"""Idempotent publishing of changes: an event is added once, even after connection failures."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from redis.asyncio import Redis

from events.client.sender import REMEMBER, Sender
from events.models import ContentReference, DocumentChanged, content_hash
from events.names import Lane, Names, Topic
from events.outbox import AssignedPosition, KeptEvent, Outbox
from events.server.connection import PATIENCE, Headroom
from events.server.scripts import PublishOnce
from events.signatures import LONGEST_SIGNATURE, SigningKey
from runtime import traces
from runtime.errors import ConfigurationError, EventIdReused, LimitExceeded
from runtime.traces import NO_SPAN, Attributes, Operation, Span, messaging

__all__ = [
    "INLINE_LIMIT_BYTES",
    "REMEMBER",
    "ContentStore",
    "Publisher",
    "Receipt",
    "ReceivedChange",
]

INLINE_LIMIT_BYTES = 256 * 2**10
_CHUNK_EVENTS = 256
_MOST_NAMED = 5
_CHUNK_BYTES = 4 * 2**20


class ContentStore(Protocol):
    """Storage of content that is too big for an event."""

    async def put(self, project: str, content: str | bytes) -> ContentReference:
        """Store content under its hash; storing it again changes nothing."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Confirmation for a publisher.

    ``token`` is the log position of the change; a query may wait for it (``min_event``).
    ``duplicate``: the event id was published before, perhaps by an earlier attempt of this call.
    """

    token: str
    event_id: str
    duplicate: bool


class ReceivedChange(Protocol):
    """A change that another program made; a valid ``signature`` is that of the bytes ``raw``."""

    @property
    def event(self) -> DocumentChanged:
        """The parsed event."""

    @property
    def raw(self) -> bytes:
        """Bytes of the event, as received."""

    @property
    def signature(self) -> bytes | None:
        """Signature as received. It is None if the event has none."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """An event that was not published, and the token of the former change under its id."""

    event: KeptEvent
    former: str


class Publisher:
    """Publishes changes idempotently: an event id is added once within 24 hours.

    Events of one call keep their order within a partition. A call that raises may have published
    some of its events; publishing all of them again is safe.

    An id with another change is refused with EventIdReused. Changes are compared by
    ``DocumentChange.fingerprint``: time, source, batch and trace context of the event don't count,
    nor does the lane. Ids are remembered in each partition, so the same id in two partitions names
    two events. Both are published. If the number of partitions was raised, the id is also looked up
    in the former partition of the document.

    ``durable`` events also survive the loss of Redis: they are stored in ``outbox`` before they are
    published, and published again from there if necessary. If a call with such events raises, any
    of them may still be published later.

    With a ``signing_key`` every event is signed. An event with another signature counts as another
    event: with a new key, it is published again, and so is its id with another change.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        *,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        content_store: ContentStore | None = None,
        outbox: Outbox | None = None,
        signing_key: SigningKey | None = None,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._names = names
        self._inline_limit_bytes = inline_limit_bytes
        self._content_store = content_store
        self._outbox = outbox
        self._signing_key = signing_key
        self._sender = Sender(redis, names, patience)
        self._headroom = Headroom(redis, patience)

    async def publish(
        self, event: DocumentChanged, lane: Lane = Lane.LIVE, *, durable: bool = False
    ) -> Receipt:
        """Publish one change.

        Raises:
            Unavailable: Redis could not be reached for as long as ``patience``; or it is durable
                and Postgres can't be reached.
            LogFull: Redis is near its memory limit.
            LimitExceeded: the content exceeds the inline limit and no content store is set.
            EventIdReused: the id was published with another change; nothing was published.
            ConfigurationError: it is durable and no outbox is set.
        """
        topic = Topic.of_lane(lane)
        # the current span is the caller's; without one, the event may name it
        parent = None if traces.current().is_valid else event.trace
        attributes = _attributes(event, topic, "publish")
        with traces.span(
            f"publish {topic}", "producer", parent=parent, attributes=attributes
        ) as span:
            outgoing = self._outgoing(event.in_trace(span), lane)
            [receipt] = await self._publish([outgoing], durable=durable)
            span.set({"headrace.token": receipt.token})
            return receipt

    async def publish_many(
        self,
        changes: Iterable[DocumentChanged],
        lane: Lane = Lane.LIVE,
        *,
        durable: bool = False,
    ) -> list[Receipt]:
        """Publish changes, up to 256 (or 4 MiB) per round trip; return receipts in their order.

        Within a span of the caller all changes are in its trace, else each has a trace of its own.

        Raises:
            EventIdReused: ids were published with other changes; ``event_ids`` lists them. All
                other events of the call are published.
            Unavailable, LogFull, LimitExceeded, ConfigurationError: see ``publish``.
        """
        topic = Topic.of_lane(lane)
        caller = traces.current()
        attributes = messaging(topic, "publish")
        with traces.span(f"publish {topic}", "producer", attributes=attributes) as span:
            above = span if caller.is_valid else NO_SPAN
            created = (_created(change, topic, above, span) for change in changes)
            all_outgoing = (self._outgoing(change, lane) for change in created)
            receipts = await self._publish(all_outgoing, durable=durable)
            span.set({"messaging.batch.message_count": len(receipts)})
            return receipts

    async def pass_on(
        self, changes: Iterable[ReceivedChange], lane: Lane = Lane.LIVE
    ) -> list[Receipt]:
        """Publish changes of other programs; return receipts in their order.

        A change with a signature keeps it, and its bytes. Any other is published as by
        ``publish_many``, whose errors this call raises too.
        """
        return await self._publish(
            (self._passed_on(change, lane) for change in changes), durable=False
        )

    async def _publish(
        self, all_outgoing: Iterable[Awaitable[KeptEvent]], *, durable: bool
    ) -> list[Receipt]:
        send = self._publish_durably if durable else self._publish_chunk
        receipts: list[Receipt | _Refused] = []
        chunk: list[KeptEvent] = []
        size_bytes = 0
        for awaited in all_outgoing:
            outgoing = await awaited
            if len(chunk) == _CHUNK_EVENTS or size_bytes + len(outgoing.body) > _CHUNK_BYTES:
                receipts += await send(chunk)
                chunk, size_bytes = [], 0
            chunk.append(outgoing)
            size_bytes += len(outgoing.body)
        return _accepted(receipts + await send(chunk))

    async def keep_content(self, project: str, content: str | bytes) -> ContentReference:
        """Store content outside of events.

        Raises:
            LimitExceeded: no content store is set, or the content is too big for it.
            Unavailable: the content store can't be reached.
        """
        if self._content_store is None:
            raise LimitExceeded(
                "big content needs a content store",
                "connect the client with one (on the command line: set HEADRACE_DATABASE_URL)",
            )
        return await self._content_store.put(project, content)

    async def _publish_durably(self, chunk: Sequence[KeptEvent]) -> list[Receipt | _Refused]:
        if self._outbox is None:
            raise ConfigurationError(
                "events can't be published durably without an outbox", "connect the client with one"
            )
        await self._headroom.check()
        await self._outbox.keep(chunk)
        receipts = await self._publish_chunk(chunk)
        # the relay drops a refused event, because a publisher may not delete from the outbox
        await self._outbox.assign(
            [
                AssignedPosition(event.project, event.event_id, receipt.token)
                for event, receipt in zip(chunk, receipts, strict=True)
                if isinstance(receipt, Receipt)
            ]
        )
        return receipts

    async def _publish_chunk(self, chunk: Sequence[KeptEvent]) -> list[Receipt | _Refused]:
        if not chunk:
            return []
        await self._headroom.check()
        return [
            _Refused(outgoing, token.decode())
            if state == PublishOnce.REUSED
            else Receipt(token.decode(), outgoing.event_id, state == PublishOnce.DUPLICATE)
            for outgoing, (token, state) in zip(
                chunk, await self._sender.replies(chunk), strict=True
            )
        ]

    async def _outgoing(self, change: DocumentChanged, lane: Lane) -> KeptEvent:
        data = change.data
        body = (await self._by_reference_if_big(change)).to_bytes()
        return KeptEvent(
            project=data.project,
            event_id=change.id,
            lane=lane,
            partition=self._names.partition_of(data.project, data.uri),
            body=body,
            signature="" if self._signing_key is None else self._signing_key.sign(body),
            fingerprint=data.fingerprint(),
            uri=data.uri,
            number=self._names.chosen_from,
        )

    async def _passed_on(self, change: ReceivedChange, lane: Lane) -> KeptEvent:
        if change.signature is None:
            return await self._outgoing(change.event, lane)
        data = change.event.data
        return KeptEvent(
            project=data.project,
            event_id=change.event.id,
            lane=lane,
            partition=self._names.partition_of(data.project, data.uri),
            body=change.raw,
            signature=change.signature[:LONGEST_SIGNATURE].decode(errors="replace"),
            fingerprint=data.fingerprint(),
            uri=data.uri,
            number=self._names.chosen_from,
        )

    async def _by_reference_if_big(self, change: DocumentChanged) -> DocumentChanged:
        data = change.data
        body = data.body
        size_bytes = 0 if body is None else len(body.encode() if isinstance(body, str) else body)
        if body is None or size_bytes <= self._inline_limit_bytes:
            return change
        if self._content_store is None:
            raise LimitExceeded(
                f"{data.uri}: {size_bytes:,} bytes don't fit into an event (at most "
                f"{self._inline_limit_bytes:,})",
                "publish with a content store (on the command line: set HEADRACE_DATABASE_URL), "
                "or as content_ref",
            )
        update = {
            "content": None,
            "content_base64": None,
            "content_ref": await self.keep_content(data.project, body),
            "content_hash": content_hash(body),
        }
        return change.model_copy(update={"data": data.model_copy(update=update)})


def _accepted(replies: Sequence[Receipt | _Refused]) -> list[Receipt]:
    """Return the receipts of a call, or raise EventIdReused if one of its events was refused."""
    refused = [reply for reply in replies if isinstance(reply, _Refused)]
    if not refused:
        return [reply for reply in replies if isinstance(reply, Receipt)]
    named = ", ".join(
        f"{reply.event.event_id!r} (as {reply.former})" for reply in refused[:_MOST_NAMED]
    )
    rest = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
    several = len(refused) > 1
    raise EventIdReused(
        f"event id{'s' * several} {named}{rest} {'were' if several else 'was'} published with "
        f"{'other changes' if several else 'another change'}",
        "give each change an id of its own",
        event_ids=tuple(reply.event.event_id for reply in refused),
    )


def _created(
    event: DocumentChanged, topic: Topic, above: Span, publishing: Span
) -> DocumentChanged:
    """Return an event of a batch in its own ``create`` span, which ``publishing`` links to."""
    if event.traceparent is not None:
        return event
    attributes = _attributes(event, topic, "create")
    span = traces.start(f"create {topic}", "producer", parent=above, attributes=attributes)
    created = event.in_trace(span)
    if span.is_recording:
        publishing.link(span)
        span.end()
    return created


def _attributes(event: DocumentChanged, topic: Topic, operation: Operation) -> Attributes:
    return {
        **messaging(topic, operation),
        "messaging.message.id": event.id,
        "headrace.project": event.data.project,
    }
