"""Composition root of a bridge: changes of Kafka's topics enter the log in Redis.

A Faust agent reads each topic and publishes its batches by ``Publisher.pass_on``. Kafka commits an
offset once its change has a token. So a change is published again after a crash, and the same event
id leads to the same entry. Changes of a partition are published one batch after the other, which
keeps the order of each key.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self
from uuid import NAMESPACE_URL, uuid5

import structlog
from aiokafka.errors import KafkaError
from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.heartbeats import Heartbeats
from events.models import DocumentChanged
from events.names import Lane, Names, Topic
from events.outbox import derived_position
from events.server.connection import redis_errors
from events.signatures import SigningKey
from events.streams.dead_letters import DeadLetter
from events.transport import App, run_app
from processors.admission import Limits
from processors.agents import batch_agent
from processors.bridge.kafka import OutcomeSender, OutgoingOutcome, kafka_app, topic_prefix
from processors.deliveries import Delivery
from processors.heartbeat import HeartbeatSender
from processors.wiring.pipelines import transport_options
from processors.wiring.servers import Servers, deployment_watch, open_servers
from runtime import metrics
from runtime.errors import OperatorError, Retryable, Unavailable
from runtime.lifespan import OwnedTasks
from runtime.settings import Settings
from store.postgres.schema_watch import SchemaWatch

__all__ = ["DeadMessages", "run_bridge"]

log = structlog.get_logger(__name__)

_BATCH = 256
_FILL = timedelta(milliseconds=20)
_TASK_PATIENCE = timedelta(seconds=2)


async def run_bridge(
    settings: Settings, stop: asyncio.Event, ready: Callable[[], None] | None = None
) -> None:
    """Publish changes from Kafka until ``stop`` is set; ``ready`` is called once it reads topics.

    Raises:
        ConfigurationError: versions, roles or settings do not match, or no broker is set.
        Unavailable: Redis, Postgres or Kafka cannot be reached at the start.
    """
    async with open_servers(settings) as servers:
        options = transport_options(settings, servers.names)
        letters = DeadMessages(
            servers.redis, servers.names, topic_prefix(settings), options.retry_delay
        )
        kafka = kafka_app(settings, options, letters)
        _read_changes(kafka, servers, settings)
        tasks = OwnedTasks(stop, timeout=_TASK_PATIENCE)
        tasks.start("schema", SchemaWatch(servers.database).run(stop))
        tasks.start("deployment", deployment_watch(servers, settings).run(stop))
        heartbeats = Heartbeats(servers.redis, servers.names)
        tasks.start("heartbeat", HeartbeatSender(heartbeats, ["bridge"], kafka).run(stop))
        flowing = asyncio.Event()

        def announce() -> None:
            flowing.set()
            if ready is not None:
                ready()

        try:
            async with asyncio.TaskGroup() as apps:
                apps.create_task(_run_kafka(kafka, stop, announce))
                if settings.bridge.outcomes:
                    feed = _outcome_feed(settings, servers.names, kafka, flowing)
                    apps.create_task(run_app(feed, stop))
        finally:
            await tasks.close()


async def _run_kafka(kafka: App, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    try:
        await run_app(kafka, stop, ready)
    except KafkaError as error:
        raise Unavailable(
            f"Kafka can't be reached ({error})", "check `brokers` in HEADRACE_BRIDGE"
        ) from error


def _read_changes(kafka: App, servers: Servers, settings: Settings) -> None:
    key = settings.signing_key.get_secret_value()
    publisher = Publisher(
        servers.redis,
        servers.names,
        inline_limit_bytes=settings.inline_content_bytes,
        content_store=servers.store,
        signing_key=SigningKey.parse(key) if key else None,
    )
    for lane in Lane:
        batch_agent(
            kafka,
            Topic.of_lane(lane),
            decode=Limits.of(settings).decoder(DocumentChanged),
            handle=_Changes(publisher, lane).run,
            max_size=_BATCH,
            within=_FILL,
            concurrency=1,
        )


def _outcome_feed(settings: Settings, names: Names, kafka: App, flowing: asyncio.Event) -> App:
    """Build the app that reads outcomes from Redis and sends them once ``kafka`` flows."""
    feed = App("headrace", broker=settings.redis_url, options=transport_options(settings, names))
    topic = topic_prefix(settings) + settings.bridge.outcomes

    async def wait() -> None:
        await flowing.wait()

    batch_agent(
        feed,
        Topic.OUTCOME,
        decode=OutgoingOutcome.decode,
        handle=OutcomeSender(kafka, topic).run,
        max_size=_BATCH,
        within=_FILL,
        concurrency=1,
        wait=wait,
    )
    return feed


@dataclass(frozen=True, slots=True)
class _Received:
    """Change as the publisher passes it on."""

    event: DocumentChanged
    raw: bytes
    signature: bytes | None

    @classmethod
    def of(cls, delivery: Delivery[DocumentChanged]) -> Self:
        """Read a delivery. An event without an id gets one that every reading repeats."""
        event = delivery.event
        if "id" not in event.model_fields_set:
            tp = delivery.entry.tp
            place = f"kafka:{tp.topic}/{tp.partition}/{delivery.entry_id}"
            event = event.model_copy(update={"id": str(uuid5(NAMESPACE_URL, place))})
        return cls(event, delivery.raw, delivery.signature)


class _Changes:
    """Publishes the changes of one lane."""

    def __init__(self, publisher: Publisher, lane: Lane) -> None:
        self._publisher = publisher
        self._lane = lane

    async def run(self, batch: Sequence[Delivery[DocumentChanged]]) -> None:
        """Publish a batch.

        Raises:
            Unavailable, LogFull: Redis or the store of big contents has to be waited for.
            EventIdReused: ids were published with other changes; all others are published.
        """
        received = [_Received.of(delivery) for delivery in batch]
        for receipt in await self._publisher.pass_on(received, self._lane):
            outcome = "duplicate" if receipt.duplicate else "published"
            metrics.MESSAGES_BRIDGED.inc(outcome=outcome, lane=self._lane)


class DeadMessages:
    """Stores the dead letters of Kafka's messages in Redis, in the lane of their topic.

    A letter names topic, partition and offset of its message. Its position is that of the time when
    it was stored, so that a redriven change does not overtake later changes. It may be stored
    twice, if the bridge dies before its offset is committed.
    """

    def __init__(self, redis: Redis, names: Names, prefix: str, retry_delay: timedelta) -> None:
        self._redis = redis
        self._names = names
        self._prefix = prefix
        self._retry_delay = retry_delay

    async def __call__(self, letter: DeadLetter) -> None:
        """Store a letter. Wait for Redis without limit: nothing delivers the message again."""
        while True:
            try:
                with redis_errors():
                    await self._store(letter)
            except (Retryable, OperatorError) as error:
                log.warning("letter.postponed", error=str(error))
                await asyncio.sleep(self._retry_delay.total_seconds())
            else:
                return

    async def _store(self, letter: DeadLetter) -> None:
        topic = Topic(letter.topic.removeprefix(self._prefix))
        partition = _partition_of(letter, self._names)
        offset = int(letter.entry_id.rpartition("-")[2])
        seconds, microseconds = await self._redis.time()
        milliseconds = seconds * 1000 + microseconds // 1000
        stored = replace(
            letter,
            topic=topic.value,
            partition=partition,
            entry_id=f"{letter.topic}/{letter.partition}/{offset}",
            detail=f"Kafka topic {letter.topic}, partition {letter.partition}, offset {offset}: "
            f"{letter.detail}",
            position=derived_position(topic.lane, partition, milliseconds, offset).position,
        )
        await self._redis.xadd(self._names.dead(topic, partition), stored.to_fields())
        metrics.DEAD_LETTERS.inc(topic=topic.value, error=letter.error)
        metrics.MESSAGES_BRIDGED.inc(outcome="dead", lane=topic.lane)


def _partition_of(letter: DeadLetter, names: Names) -> int:
    """Partition of the document that a letter names, or the first if it names none."""
    try:
        data = json.loads(letter.event)["data"]
        return names.partition_of(str(data["project"]), str(data["uri"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0
