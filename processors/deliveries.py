"""Deliveries: one event each, opened from an entry and settled.

It comes from a stream of Redis or, in a bridge, from a topic of Kafka.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import time
from typing import Any, Generic, Protocol, TypeVar

from faust.types import TP

from events.names import BRIDGE, GROUPS, LogPosition, Topic
from events.signatures import SIGNATURE_FIELD
from events.transport import App, InFlightEntry, kept_position
from events.transport.consumer_group import EVENT_FIELD, letter_of
from runtime import traces
from runtime.errors import MalformedEvent, Poison
from runtime.traces import NO_SPAN, Attributes, Span

__all__ = ["Deliveries", "Delivery", "Settlement", "deliveries_of"]

E = TypeVar("E")


class Settlement(Protocol):
    """Settlement of entries. Redis settles each one by its id, Kafka by its offset."""

    def acknowledge(self, entry: InFlightEntry, *, sent: bool = False) -> None:
        """Acknowledge an entry whose effect has committed; nothing happens if it is settled.

        ``sent``: the log has the acknowledgement already.
        """

    async def retry(self, entry: InFlightEntry, delay: timedelta, *, counted: bool) -> None:
        """Let an entry be handled again after a delay."""

    async def reject(self, entry: InFlightEntry, error: str, detail: str, attempts: int) -> None:
        """Move an entry to the dead letters."""

    def give_back(self, entry: InFlightEntry) -> None:
        """Leave an unfinished entry to the next consumer."""


@dataclass(eq=False)
class Delivery(Generic[E]):
    """One event on its way through a handler.

    ``own`` is the log position of the entry itself, or None if the event is not a change.
    ``log_position`` is the one that counts: after a redrive, the original one.
    """

    event: E
    topic: Topic
    entry: InFlightEntry
    own: LogPosition | None
    log_position: LogPosition
    settlement: Settlement = field(repr=False)

    @property
    def partition(self) -> int:
        """Partition of the entry's stream."""
        partition: int = self.entry.tp.partition
        return partition

    @property
    def entry_id(self) -> str:
        """Id of the entry in its stream."""
        return self.entry.id

    @property
    def attempts(self) -> int:
        """Number of this attempt, from 1; those that a server's failure ended don't count."""
        return self.entry.attempt

    @property
    def settled(self) -> bool:
        """Return whether the event has its outcome, or another consumer has taken it over."""
        return self.entry.settled

    @property
    def raw(self) -> bytes:
        """Bytes of the event."""
        return self.entry.event

    @property
    def signature(self) -> bytes | None:
        """Signature as received. It is None if the event has none."""
        return self.entry.fields.get(SIGNATURE_FIELD)

    @property
    def is_original(self) -> bool:
        """Return whether the entry's own position counts: no redrive or publisher asserts another.

        It is False for an event that is not a change.
        """
        return self.own == self.log_position

    @property
    def sha256(self) -> str:
        """SHA-256 of the event's bytes, in hex."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def event_id(self) -> str:
        """CloudEvents id, for logs."""
        return str(getattr(self.event, "id", self.entry_id))

    @property
    def span(self) -> Span:
        """Span of the work on the event; it ends when the event is settled."""
        return self.entry.span

    def acknowledge(self, *, sent: bool = False) -> None:
        """Acknowledge now: the effect is committed, whether or not the rest of the batch fails.

        ``sent``: the log has the acknowledgement already, as that of a question with its reply.
        """
        self.settlement.acknowledge(self.entry, sent=sent)

    async def retry(self, delay: timedelta, *, counted: bool) -> None:
        """Handle the event again after a delay."""
        await self.settlement.retry(self.entry, delay, counted=counted)

    async def reject(self, error: str, detail: str) -> None:
        """Dead-letter the event."""
        await self.settlement.reject(self.entry, error, detail, self.attempts)


class Deliveries(ABC):
    """Opens the deliveries of one topic."""

    def __init__(self, app: App, topic: Topic) -> None:
        self._app = app
        self._topic = topic
        self._system = "redis" if app.over_redis else "kafka"
        self._group = GROUPS.get(topic, BRIDGE) if app.over_redis else BRIDGE

    @property
    def closing(self) -> bool:
        """Return whether the worker is shutting down, so that no work may begin."""
        return bool(getattr(self._app.consumer, "closing", False))

    @abstractmethod
    def entry_of(self, message: Any) -> InFlightEntry:
        """Return the entry of a Faust message."""

    async def open(
        self, entries: Sequence[InFlightEntry], decode: Callable[[bytes], E]
    ) -> list[Delivery[E]]:
        """Begin work on entries. Bytes that are not an event are dead-lettered right here."""
        batch: list[Delivery[E]] = []
        for entry in await self._begin(entries):
            try:
                batch.append(self._delivery(entry, decode))
            except Exception as error:  # noqa: BLE001 - the same bytes never decode later
                code = error.code if isinstance(error, Poison) else MalformedEvent.__name__
                detail = str(error) or repr(error)
                await self._settlement(entry).reject(entry, code, detail, entry.attempt)
        return batch

    def give_back(self, entries: Sequence[InFlightEntry]) -> None:
        """Leave entries to the next consumer; those that are settled stay settled."""
        for entry in entries:
            self._settlement(entry).give_back(entry)

    @abstractmethod
    async def _begin(self, entries: Sequence[InFlightEntry]) -> Sequence[InFlightEntry]: ...

    @abstractmethod
    def _settlement(self, entry: InFlightEntry) -> Settlement: ...

    def _delivery(self, entry: InFlightEntry, decode: Callable[[bytes], E]) -> Delivery[E]:
        own = self._position(entry)
        position = 0 if own is None else kept_position(entry.fields, own)
        delivery = Delivery(
            event=decode(entry.event),
            topic=self._topic,
            entry=entry,
            own=own,
            log_position=LogPosition(position, entry.tp.partition),
            settlement=self._settlement(entry),
        )
        entry.span = self._span(delivery)
        return delivery

    def _span(self, delivery: Delivery[Any]) -> Span:
        """Start the span of the work on an event.

        It is in the trace of the event, so that a change is one trace. A redriven event begins a
        trace of its own, with a link to that of its first life. An event of a worker that has no
        trace begins none: its change was not sampled.
        """
        made = getattr(delivery.event, "trace", NO_SPAN)
        if made is NO_SPAN and self._topic.is_of_workers:
            return NO_SPAN
        is_redriven = delivery.own is not None and not delivery.is_original
        span = traces.start(
            f"process {self._topic}",
            "consumer",
            parent=NO_SPAN if is_redriven else made,
            links=[made] if is_redriven else [],
        )
        if span.is_recording:  # few are, and building the attributes takes longer than the span
            span.set(self._attributes(delivery))
        return span

    def _attributes(self, delivery: Delivery[Any]) -> Attributes:
        entry = delivery.entry
        data = getattr(delivery.event, "data", None)
        token = delivery.log_position.token if delivery.own else getattr(data, "token", None)
        attributes = {
            **traces.messaging(self._topic, "process", self._system),
            "messaging.message.id": delivery.event_id,
            "messaging.consumer.group.name": self._group,
            "messaging.destination.partition.id": str(delivery.partition),
            "headrace.attempt": delivery.attempts,
            "headrace.waited_ms": max(0, int(time() * 1000) - int(entry.id.partition("-")[0])),
        }
        if self._topic is Topic.QUERY:
            attributes["messaging.message.conversation_id"] = delivery.event_id
        if token is not None:
            attributes["headrace.token"] = token
        project = getattr(data, "project", None)
        if project is not None:
            attributes["headrace.project"] = project
        return attributes

    def _position(self, entry: InFlightEntry) -> LogPosition | None:
        if not self._topic.carries_changes:
            return None
        return LogPosition.of_entry(self._topic.lane, entry.tp.partition, entry.id)


class _StreamDeliveries(Deliveries):
    """Deliveries of Redis; the subscription of a stream settles its entries."""

    def entry_of(self, message: Any) -> InFlightEntry:
        entry: InFlightEntry = message.entry
        return entry

    async def _begin(self, entries: Sequence[InFlightEntry]) -> Sequence[InFlightEntry]:
        begun: Sequence[InFlightEntry] = await self._app.consumer.begin(entries)
        return begun

    def _settlement(self, entry: InFlightEntry) -> Settlement:
        settlement: Settlement = self._app.consumer.subscriptions[entry.tp]
        return settlement


@dataclass(slots=True, eq=False)
class _KafkaEntry(InFlightEntry):
    """Entry of a Kafka message; its id consists of the timestamp and the offset."""

    message: Any = None


class _KafkaDeliveries(Deliveries):
    """Deliveries of Kafka. They have no log position: Redis assigns it when they are published."""

    def __init__(self, app: App, topic: Topic) -> None:
        super().__init__(app, topic)
        self._kafka = _KafkaSettlement(app)

    def entry_of(self, message: Any) -> InFlightEntry:
        # Kafka allows headers without a value, and messages without a time
        headers = {name.encode(): value or b"" for name, value in message.headers or ()}
        milliseconds = max(0, int(message.timestamp * 1000))
        entry = _KafkaEntry(
            TP(message.topic, message.partition),
            f"{milliseconds}-{message.offset}",
            {**headers, EVENT_FIELD: message.value or b""},
            message=message,
        )
        self._kafka.expect(entry)
        return entry

    async def _begin(self, entries: Sequence[InFlightEntry]) -> Sequence[InFlightEntry]:
        return entries

    def _settlement(self, entry: InFlightEntry) -> Settlement:
        return self._kafka

    def _position(self, entry: InFlightEntry) -> None:
        return None


class _KafkaSettlement:
    """Settlement on Kafka, which cannot redeliver a single message: it is retried right here.

    Messages of a partition are acknowledged in their order. Faust commits the offset behind the
    first acknowledged message of a partition, even if an earlier one is still in flight.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._unacknowledged: defaultdict[TP, deque[_KafkaEntry]] = defaultdict(deque)

    def expect(self, entry: _KafkaEntry) -> None:
        """Add the next message of a partition; it is not acknowledged before those ahead of it."""
        self._unacknowledged[entry.tp].append(entry)

    def acknowledge(self, entry: InFlightEntry, *, sent: bool = False) -> None:
        """Let Faust commit the offset as soon as all earlier messages are settled."""
        if entry.settled:
            return
        entry.settled = True
        entry.span.end()
        messages = self._unacknowledged[entry.tp]
        while messages and messages[0].settled:
            messages.popleft().message.ack(self._app.consumer)

    async def retry(self, entry: InFlightEntry, delay: timedelta, *, counted: bool) -> None:
        """Wait for the delay; the entry stays unsettled."""
        await asyncio.sleep(delay.total_seconds())
        entry.attempt += counted

    async def reject(self, entry: InFlightEntry, error: str, detail: str, attempts: int) -> None:
        """Pass the letter to ``on_dead``, which stores it: Kafka itself has no dead letters."""
        assert self._app.on_dead is not None
        await self._app.on_dead(letter_of(entry, BRIDGE, error, detail, attempts))
        self.acknowledge(entry)

    def give_back(self, entry: InFlightEntry) -> None:
        """Do nothing: the offset is not committed, so the message is delivered again."""


def deliveries_of(app: App, topic: Topic) -> Deliveries:
    """Deliveries of a topic, of the kind that fits the app's broker."""
    return (_StreamDeliveries if app.over_redis else _KafkaDeliveries)(app, topic)
