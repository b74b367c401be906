"""Settings of a bridge become those of its Faust app."""

from __future__ import annotations

from typing import Any

import pytest

from events.models import (
    DocumentIndexed,
    Problem,
    QueryFailed,
    QueryFailedData,
)
from events.transport import Options
from processors.bridge.kafka import OutgoingOutcome, kafka_app, topic_prefix
from runtime.errors import ConfigurationError
from runtime.settings import BridgeSettings, Settings


def settings(**bridge: Any) -> Settings:
    return Settings(bridge=BridgeSettings(**bridge), stream_prefix="acme")


async def ignore(_letter: object) -> None: ...


def test_topics_and_group_have_the_prefix() -> None:
    """The default is that of the streams, so that two deployments can share brokers."""
    app = kafka_app(settings(brokers=["a:1", "b:2"]), Options(), ignore)
    assert (app.conf.id, app.topic_prefix) == ("acme.bridge", "acme.")
    assert [str(url) for url in app.conf.broker] == ["kafka://a:1", "kafka://b:2"]
    assert app.conf.broker_session_timeout == 10
    assert topic_prefix(settings(prefix="")) == ""
    assert topic_prefix(settings(prefix="other-")) == "other-"
    with pytest.raises(ConfigurationError, match="set `prefix` in HEADRACE_BRIDGE"):
        topic_prefix(Settings(stream_prefix="a:b"))


def test_a_bridge_without_a_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs a Kafka broker"):
        kafka_app(settings(), Options(), ignore)


def test_credentials_are_those_of_sasl_and_tls() -> None:
    def credentials(**bridge: Any) -> Any:
        brokers = {"brokers": ["a:1"]}
        return kafka_app(settings(**brokers, **bridge), Options(), ignore).conf.broker_credentials

    assert credentials() is None
    assert credentials(tls=True).protocol.value == "SSL"
    scram = credentials(user="ana", password="s3cret")  # noqa: S106 - of no server
    assert (scram.protocol.value, scram.mechanism.value) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    plain = credentials(user="ana", password="s3cret", mechanism="PLAIN", tls=True)  # noqa: S106
    assert (plain.protocol.value, plain.mechanism.value) == ("SASL_SSL", "PLAIN")
    assert (plain.username, plain.password) == ("ana", "s3cret")


def test_only_outcomes_are_sent() -> None:
    """The key is the id of the event whose outcome it is; other entries have none."""
    data = {"event_id": "e1", "token": "live:0:1-0", "project": "p", "uri": "u"}
    indexed = DocumentIndexed.model_validate(
        {"type": DocumentIndexed.TYPE, "data": {**data, "change": "upsert", "outcome": "indexed"}}
    )
    assert OutgoingOutcome.decode(indexed.to_bytes()).event_id == "e1"
    failed = QueryFailed(data=QueryFailedData(query_id="q", problem=Problem(type="x", detail="y")))
    for raw in (failed.to_bytes(), b"garbage"):
        assert OutgoingOutcome.decode(raw) == OutgoingOutcome(None, raw)
