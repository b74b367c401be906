"""Kill of a bridge: each message of Kafka enters the log once, in the order of its key."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from events.heartbeats import Heartbeats
from events.models import DocumentChange, DocumentChanged
from events.names import BRIDGE, Lane, Topic
from tests.chaos.journal import PROJECT, Journal
from tests.chaos.logbook import Published
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size
from tests.chaos.verifier import Allowances
from tests.support.cli import Cli
from tests.support.doctors import doctor_at, finding_names
from tests.support.kafka import Kafka, kafka_broker
from tests.support.replays import replay, tools
from tests.support.waiting import eventually

MESSAGES = size(300, thorough=10_000)
PARTITIONS = 4
OUTCOMES = "document.outcome"
SETTLED_SECONDS = size(15, thorough=120)
TAKEOVER_SECONDS = 40.0
"""The session of the dead bridge lasts 10 s, and the broker's own round may be longer."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with kafka_broker() as broker:
        yield broker


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", seeds())
async def test_messages_enter_the_log_once(chaos: Chaos, kafka: Kafka, seed: int) -> None:
    """A bridge is killed, and a quarter of the messages is sent twice: the index is their fold.

    Messages that are not changes become dead letters that name their place. Each outcome is sent
    back. A replay and the doctor read the log as any other.
    """
    bridge = {"brokers": [kafka.address], "outcomes": OUTCOMES}
    async with chaos(seed, HEADRACE_BRIDGE=json.dumps(bridge)) as run:
        topics = [Topic.of_lane(lane).value for lane in Lane]
        await kafka.create(
            *(_topic(run, name) for name in [*topics, OUTCOMES]), partitions=PARTITIONS
        )
        await run.worker()
        victim, _ = [await run.worker("--only", "bridge") for _ in range(2)]
        await _bridges_are_seen(run, 2)

        sent = _messages(run, seed)
        first = next(message.event for message in sent if message.lane is Lane.LIVE)
        reused = DocumentChanged(
            id=first.id, data=DocumentChange(project=PROJECT, uri=first.data.uri, content="other")
        )
        refused = [b"no change", reused.to_bytes()]
        async with kafka.producer() as producer:
            await _send(producer, run, sent[: MESSAGES // 2])
            await eventually(lambda: _logged(run, MESSAGES // 8), "some are published", timeout=60)
            await victim.kill()
            await _send(producer, run, sent[MESSAGES // 2 :])
            await _send(producer, run, random.Random(seed).sample(sent, MESSAGES // 4))
            for raw in refused:
                await producer.send_and_wait(_topic(run, Topic.CHANGED_LIVE), raw, _key(first))
        await eventually(
            lambda: _logged(run, MESSAGES), "all are published", timeout=TAKEOVER_SECONDS, every=0.5
        )
        await eventually(lambda: _letters(run, 2), "both are dead-lettered", timeout=30, every=0.5)

        await run.verify(Allowances(dead={reused.id}, settled_seconds=SETTLED_SECONDS))
        assert all(receipt.duplicate for receipt in run.logbook.receipts), "not all were published"
        _assert_in_order(sent)
        await _assert_named(run, refused)
        await _assert_sent_back(run, kafka)
        await _assert_replayed(run)


def _messages(run: Run, seed: int) -> list[Published]:
    """Record changes of both lanes before they are sent; a document stays in one lane."""
    journal = Journal(seed)
    return [run.logbook.publishing(event, _lane(event)) for event in journal.changes(MESSAGES)]


def _lane(event: DocumentChanged) -> Lane:
    return Lane.BULK if int(event.data.uri[-5:-3]) % 3 else Lane.LIVE


def _topic(run: Run, name: str) -> str:
    return f"{run.names.prefix}.{name}"


def _key(event: DocumentChanged) -> bytes:
    return f"{event.data.project}\0{event.data.uri}".encode()


async def _send(producer: Any, run: Run, messages: Sequence[Published]) -> None:
    acknowledged = [
        await producer.send(
            _topic(run, Topic.of_lane(message.lane)), message.event.to_bytes(), _key(message.event)
        )
        for message in messages
    ]
    for acknowledgement in acknowledged:
        await acknowledgement


async def _logged(run: Run, count: int) -> bool:
    lengths: list[int] = [
        await run.redis.xlen(run.names.stream(Topic.of_lane(lane))) for lane in Lane
    ]
    total: int = sum(lengths)
    assert total <= MESSAGES, "a message was published twice"
    return total >= count


async def _letters(run: Run, count: int) -> bool:
    length: int = await run.redis.xlen(run.names.dead(Topic.CHANGED_LIVE))
    return length >= count


async def _bridges_are_seen(run: Run, count: int) -> None:
    async def seen() -> bool:
        beats = await Heartbeats(run.redis, run.names).read()
        bridges = [beat for beat in beats if beat.state["roles"] == [BRIDGE]]
        return len(bridges) == count

    await eventually(seen, "status sees the bridges")


def _assert_in_order(sent: Sequence[Published]) -> None:
    """Assert that positions of one key and lane rise in the order in which they were sent."""
    positions = defaultdict(list)
    for message in sent:
        positions[message.lane, _key(message.event)].append(message.position)
    assert all(of_key == sorted(of_key) for of_key in positions.values())


async def _assert_named(run: Run, refused: Sequence[bytes]) -> None:
    """Assert that the letters are listed with reason, topic, partition and offset."""
    listed = (await Cli(run.environment)("dead", "list", "--json")).objects
    assert {letter["event"].encode() for letter in listed} == set(refused)
    assert {letter["error"] for letter in listed} == {"MalformedEvent", "EventIdReused"}
    for letter in listed:
        topic, partition, offset = letter["entry_id"].split("/")
        assert topic == _topic(run, Topic.CHANGED_LIVE)
        place = f"Kafka topic {topic}, partition {int(partition)}, offset {int(offset)}: "
        assert letter["detail"].startswith(place)
        assert letter["group"] == BRIDGE


async def _assert_sent_back(run: Run, kafka: Kafka) -> None:
    """Assert that the outcome of each change is sent, keyed by the id of its event."""
    ids = {message.event.id.encode() for message in run.logbook.published}

    async def all_are() -> bool:
        outcomes = await kafka.messages(_topic(run, OUTCOMES))
        for outcome in outcomes:
            assert json.loads(outcome.value)["data"]["event_id"].encode() == outcome.key
        return {outcome.key for outcome in outcomes} == ids

    await eventually(all_are, "each outcome is sent", timeout=30, every=1)


async def _assert_replayed(run: Run) -> None:
    """Assert that a replay finds every document in the log, and the doctor nothing to repair."""
    async with tools(
        run.environment["HEADRACE_REDIS_URL"],
        run.database,
        home=run.environment["HEADRACE_HOME"],
        stream_prefix=run.names.prefix,
    ) as opened:
        report = await replay(opened, PROJECT)
        assert report.documents == len(run.logbook.oracle(PROJECT))
        [health] = await doctor_at(opened).examine([PROJECT])
        assert finding_names(health) == set()
