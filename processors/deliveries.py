"""Deliveries: one event each, opened from a message and settled, on Redis or Kafka."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from events.names import DEAD_SUFFIX, GROUPS, Topic
from events.positions import LogPosition
from events.signatures import SIGNATURE_FIELD
from events.streams.dead_letters import DeadLetter, instant_of, storable_signature, tellable
from events.transport import App, InFlightEntry, kept_position
from runtime.errors import MalformedEvent, Poison

__all__ = ["Deliveries", "Delivery", "deliveries_of"]

E = TypeVar("E")

_TRUSTED_ATTEMPTS = 2


@dataclass(eq=False)
class Delivery(Generic[E]):
    """One event on its way through a handler.

    ``own`` is the log position of the entry itself, or None if the event is not a change.
    ``log_position`` is the one that counts: after a redrive, the original one.
    ``attempts`` starts at 1 and leaves out those that a server's failure ended.
    """

    event: E
    topic: Topic
    partition: int
    entry_id: str
    own: LogPosition | None
    log_position: LogPosition
    attempts: int
    raw: bytes
    message: Any = field(repr=False)
    settle: Callable[[Delivery[E]], None] = field(repr=False)
    settled: bool = False
    signature: bytes | None = None

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

    def done(self) -> None:
        """Acknowledge now: the effect is committed, whether or not the rest of the batch fails."""
        if not self.settled:
            self.settled = True
            self.settle(self)


class Deliveries(ABC):
    """Opens and settles the deliveries of one topic."""

    def __init__(self, app: App, topic: Topic) -> None:
        self._app = app
        self._topic = topic

    @property
    def most_attempts(self) -> int:
        """Attempts before an event is dead-lettered."""
        return self._app.options.max_deliveries

    @property
    def closing(self) -> bool:
        """Return whether the worker is shutting down, so that no work may begin."""
        return bool(getattr(self._app.consumer, "closing", False))

    def split(self, messages: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Split messages into those to batch and those that had two attempts without an outcome."""
        suspect = [message for message in messages if self._attempt(message) > _TRUSTED_ATTEMPTS]
        return [message for message in messages if message not in suspect], suspect

    async def open(
        self, messages: Sequence[Any], decode: Callable[[bytes], E]
    ) -> list[Delivery[E]]:
        """Begin work on messages. Bytes that are not an event are dead-lettered right here."""
        batch: list[Delivery[E]] = []
        for message in await self._begin(messages):
            try:
                batch.append(self._decode(message, decode))
            except Exception as error:  # noqa: BLE001 - the same bytes never decode later
                code = error.code if isinstance(error, Poison) else MalformedEvent.__name__
                await self._dead_letter(
                    message, code, str(error) or repr(error), self._attempt(message)
                )
        return batch

    async def retry(self, delivery: Delivery[E], wait: timedelta | None, *, counted: bool) -> None:
        """Handle the event again after ``wait``; None means the default delay."""
        await self._retry(delivery, wait or self._app.options.retry_delay, counted=counted)

    async def reject(self, delivery: Delivery[E], error: str, detail: str) -> None:
        """Dead-letter the event."""
        delivery.settled = True
        await self._dead_letter(delivery.message, error, detail, delivery.attempts)

    @abstractmethod
    def give_back(self, message: Any) -> None:
        """Leave an unfinished message to the next consumer."""

    @abstractmethod
    async def _begin(self, messages: Sequence[Any]) -> Sequence[Any]: ...

    @abstractmethod
    async def _retry(self, delivery: Delivery[E], wait: timedelta, *, counted: bool) -> None: ...

    @abstractmethod
    async def _dead_letter(self, message: Any, error: str, detail: str, attempts: int) -> None: ...

    @abstractmethod
    def _acknowledge(self, delivery: Delivery[Any]) -> None: ...

    @abstractmethod
    def _attempt(self, message: Any) -> int: ...

    @abstractmethod
    def _entry_id(self, message: Any) -> str: ...

    @abstractmethod
    def _fields(self, message: Any) -> Mapping[bytes, bytes]: ...

    def _decode(self, message: Any, decode: Callable[[bytes], E]) -> Delivery[E]:
        raw = message.value or b""
        entry_id = self._entry_id(message)
        fields = self._fields(message)
        own = self._position(message.partition, entry_id)
        position = 0 if own is None else kept_position(fields, own)
        return Delivery(
            event=decode(raw),
            topic=self._topic,
            partition=message.partition,
            entry_id=entry_id,
            own=own,
            log_position=LogPosition(position, message.partition),
            attempts=self._attempt(message),
            raw=raw,
            message=message,
            settle=self._acknowledge,
            signature=fields.get(SIGNATURE_FIELD),
        )

    def _position(self, partition: int, entry_id: str) -> LogPosition | None:
        if not self._topic.carries_changes:
            return None
        return LogPosition.of_entry(self._topic.lane, partition, entry_id)


class _StreamDeliveries(Deliveries):
    """Deliveries of Redis, where each entry is settled on its own."""

    async def _begin(self, messages: Sequence[Any]) -> Sequence[Any]:
        entries: list[InFlightEntry] = [message.entry for message in messages]
        ours = set(await self._app.consumer.begin(entries))
        return [message for message in messages if message.entry in ours]

    def give_back(self, message: Any) -> None:
        self._app.consumer.retry(message.entry, timedelta(), counted=False)

    async def _retry(self, delivery: Delivery[E], wait: timedelta, *, counted: bool) -> None:
        delivery.settled = True
        self._app.consumer.retry(delivery.message.entry, wait, counted=counted)

    async def _dead_letter(self, message: Any, error: str, detail: str, attempts: int) -> None:
        await self._app.consumer.dead_letter(message.entry, error, detail, attempts)

    def _acknowledge(self, delivery: Delivery[Any]) -> None:
        self._app.consumer.acknowledge(delivery.message.entry)

    def _attempt(self, message: Any) -> int:
        attempt: int = message.entry.attempt
        return attempt

    def _entry_id(self, message: Any) -> str:
        entry_id: str = message.entry.id
        return entry_id

    def _fields(self, message: Any) -> Mapping[bytes, bytes]:
        fields: Mapping[bytes, bytes] = message.entry.fields
        return fields


class _KafkaDeliveries(Deliveries):
    """Deliveries of Kafka, which cannot redeliver a single message: it is retried right here.

    Entry ids consist of the timestamp and the offset's low bits. For them to be in order, the
    topics need ``message.timestamp.type=LogAppendTime``.
    """

    def give_back(self, message: Any) -> None:
        """Do nothing: the offset is not committed, so the message is delivered again."""

    async def _begin(self, messages: Sequence[Any]) -> Sequence[Any]:
        return messages

    async def _retry(self, delivery: Delivery[E], wait: timedelta, *, counted: bool) -> None:
        await asyncio.sleep(wait.total_seconds())
        delivery.attempts += counted

    async def _dead_letter(self, message: Any, error: str, detail: str, attempts: int) -> None:
        letter = self._letter(message, error, detail, attempts)
        for hook in (self._app.on_rejected.get(self._topic), self._app.on_dead):
            if hook is not None:
                await hook(letter)
        headers = {
            name: value if isinstance(value, bytes) else str(value).encode()
            for name, value in letter.to_fields().items()
            if name != "event"
        }
        await self._app.send(
            self._topic + DEAD_SUFFIX,
            value=letter.event,
            headers=headers,
            key_serializer="raw",
            value_serializer="raw",
        )
        message.ack(self._app.consumer)

    def _letter(self, message: Any, error: str, detail: str, attempts: int) -> DeadLetter:
        return DeadLetter(
            event=message.value or b"",
            topic=self._topic,
            partition=message.partition,
            entry_id=self._entry_id(message),
            group=GROUPS[self._topic],
            error=error,
            detail=tellable(detail),
            attempts=attempts,
            first_at=instant_of(message.timestamp * 1000),
            last_at=datetime.now(UTC),
            signature=storable_signature(self._fields(message)),
        )

    def _acknowledge(self, delivery: Delivery[Any]) -> None:
        delivery.message.ack(self._app.consumer)

    def _attempt(self, message: Any) -> int:
        return 1

    def _entry_id(self, message: Any) -> str:
        return f"{int(message.timestamp * 1000)}-{message.offset & 0xFFFFF}"

    def _fields(self, message: Any) -> Mapping[bytes, bytes]:
        return {name.encode(): value for name, value in message.headers or ()}


def deliveries_of(app: App, topic: Topic) -> Deliveries:
    """Deliveries of a topic, of the kind that fits the app's broker."""
    return (_StreamDeliveries if app.over_redis else _KafkaDeliveries)(app, topic)
