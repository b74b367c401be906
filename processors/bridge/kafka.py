"""Kafka as a bridge sees it: names of topics, the Faust app, and the topic of outcomes."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import faust
from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError

from events.client.outcomes import Outcome
from events.models import parse_event
from events.names import BRIDGE
from events.transport import App, Options
from events.transport.subscription import OnDead
from processors.deliveries import Delivery
from runtime.errors import ConfigurationError, MalformedEvent, Unavailable
from runtime.settings import BridgeSettings, Settings

__all__ = ["OutcomeSender", "OutgoingOutcome", "kafka_app", "topic_prefix"]

_SESSION = timedelta(seconds=10)
"""Time after which the broker gives the partitions of a silent bridge to the others."""

_HEARTBEAT = timedelta(seconds=3)
_COMMIT = timedelta(seconds=1)
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")


def topic_prefix(settings: Settings) -> str:
    """Return the text before the names of the topics and of the consumer group.

    Raises:
        ConfigurationError: the prefix of the streams has characters that no topic may have.
    """
    chosen = settings.bridge.prefix
    prefix = f"{settings.stream_prefix}." if chosen is None else chosen
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(
            f"names of Kafka's topics can't begin with HEADRACE_STREAM_PREFIX, {prefix!r}",
            "set `prefix` in HEADRACE_BRIDGE",
        )
    return prefix


def kafka_app(settings: Settings, options: Options, on_dead: OnDead) -> App:
    """Build the app that reads the topics of changes and sends outcomes.

    Raises:
        ConfigurationError: the settings name no broker, or names of topics would be invalid.
    """
    bridge, prefix = settings.bridge, topic_prefix(settings)
    if not bridge.brokers:
        raise ConfigurationError(
            "a bridge needs a Kafka broker",
            """set HEADRACE_BRIDGE='{"brokers": ["host:9092"]}'""",
        )
    return App(
        prefix + BRIDGE,
        broker=";".join(f"kafka://{address}" for address in bridge.brokers),
        broker_credentials=_credentials(bridge),
        broker_session_timeout=_SESSION,
        broker_rebalance_timeout=_SESSION,
        broker_heartbeat_interval=_HEARTBEAT,
        broker_commit_interval=_COMMIT,
        options=options,
        on_dead=on_dead,
        topic_prefix=prefix,
    )


def _credentials(bridge: BridgeSettings) -> Any:
    """Return the credentials for Faust; None for a connection without TLS and SASL."""
    context = ssl.create_default_context() if bridge.tls else None
    if bridge.user:
        return faust.SASLCredentials(
            username=bridge.user,
            password=bridge.password.get_secret_value(),
            mechanism=bridge.mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


@dataclass(frozen=True, slots=True)
class OutgoingOutcome:
    """Bytes of an outcome, and the id of the event of its change.

    ``event_id`` is None if an entry of the stream is not an outcome, or its event has no id.
    """

    event_id: str | None
    raw: bytes

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Parse an entry of the outcome stream; others must not stop the sender."""
        try:
            outcome = parse_event(raw)
        except MalformedEvent:
            return cls(None, raw)
        return cls(outcome.data.event_id if isinstance(outcome, Outcome) else None, raw)


class OutcomeSender:
    """Sends outcomes to a topic of Kafka, each at least once, keyed by the id of its event."""

    def __init__(self, kafka: App, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic

    async def run(self, batch: Sequence[Delivery[OutgoingOutcome]]) -> None:
        """Send a batch; return when the brokers have acknowledged all of it.

        Raises:
            Unavailable: Kafka can't be reached, or refuses the topic.
        """
        outcomes = [delivery.event for delivery in batch]
        try:
            sent = [
                await self._kafka.producer.send(
                    self._topic, outcome.event_id.encode(), outcome.raw, None, None, None
                )
                for outcome in outcomes
                if outcome.event_id is not None
            ]
            await asyncio.gather(*sent)
        except (KafkaError, ProducerSendError) as error:
            raise Unavailable(
                f"Kafka does not accept outcomes in {self._topic} ({error})",
                "check the brokers, and that the topic exists",
            ) from error
