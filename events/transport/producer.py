"""Producer with which Faust code sends to a topic; publishers use ``events.client.client`` instead.

Only the client is idempotent.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Mapping
from typing import Any

from faust.transport import base
from faust.types import TP, RecordMetadata
from mode.utils.futures import done_future

from events.server.connection import connect, redis_errors
from events.transport.consumer_group import EVENT_FIELD, InFlightEntry

__all__ = ["Producer"]


class Producer(base.Producer):
    """Adds the value of a message as an event, and its headers as further fields."""

    def __post_init__(self) -> None:
        self._redis = connect(self.transport.redis_url)
        self._names = self.transport.options.names

    async def on_shutdown(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Mapping[str, bytes] | list[tuple[str, bytes]] | None,
        *,
        transactional_id: str | None = None,
    ) -> Awaitable[RecordMetadata]:
        """Add one entry; return when Redis has it.

        Raises:
            Unavailable: Redis can't be reached; the entry may have been added.
            LogFull: Redis is at its memory limit.
        """
        if partition is None:
            partition = self.key_partition(topic, key or b"").partition
        fields: dict[Any, Any] = {EVENT_FIELD: value or b"", **dict(headers or {})}
        with redis_errors():
            entry_id: Any = await self._redis.xadd(self._names.stream(topic, partition), fields)
        tp = TP(topic, partition)
        offset = InFlightEntry(tp, entry_id.decode(), {}).offset
        metadata = RecordMetadata(topic, partition, tp, offset, timestamp, 1)
        sent: asyncio.Future[RecordMetadata] = done_future(metadata)
        return sent

    async def send_and_wait(self, *args: Any, **kwargs: Any) -> RecordMetadata:
        """Send, and wait for the result of ``send``."""
        return await (await self.send(*args, **kwargs))

    async def flush(self) -> None:
        """Send the messages that Faust has buffered."""
        if self.buffer.size and self.buffer.state == "running":
            await self.buffer.flush()

    async def create_topic(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a stream is created with its first entry or group."""

    def key_partition(self, topic: str, key: bytes) -> TP:
        """Return the partition of a key: stable, by CRC-32."""
        return TP(topic, zlib.crc32(key or b"") % self._names.partitions)

    def supports_headers(self) -> bool:
        """Return True: headers become fields of the entry."""
        return True
