"""Agents on Kafka: retries within the process, because Kafka can't redeliver one message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from faust.types import TP, ConsumerMessage

from events.names import BRIDGE, Topic
from events.streams.dead_letters import DeadLetter
from events.transport import App
from processors.agents import Delivery, _AgentTasks
from runtime.errors import Poison, Unavailable
from tests.support.waiting import eventually
from tests.support.workers import FAST, TOPIC, decode


class FakeConsumer:
    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def ack(self, message: Any) -> bool:
        self.acknowledged.append(message.offset)
        return True


class FakeStream:
    """Part of a Faust stream that the pump needs."""

    def __init__(self, messages: Sequence[ConsumerMessage]) -> None:
        self._messages = messages

    def noack(self) -> FakeStream:
        return self

    async def events(self) -> AsyncIterator[Any]:
        for message in self._messages:
            yield type("Event", (), {"message": message})
        await asyncio.Event().wait()


def message(offset: int, value: bytes, time: float = 1000.0) -> ConsumerMessage:
    headers = [("signature", b"of " + value), ("traceparent", None)]
    made = ConsumerMessage(
        TOPIC.value, 0, offset, time, 1, headers, None, value, None, tp=TP(TOPIC.value, 0)
    )
    made.incref()
    return made


class Harness:
    """Crew that handles given messages, on an app with a Kafka broker."""

    def __init__(self, handle: Callable[[Sequence[Delivery[str]]], Any]) -> None:
        self.consumer = FakeConsumer()
        self.letters: list[DeadLetter] = []
        options = replace(FAST, retry_delay=timedelta(milliseconds=1))
        app = App("test", broker="kafka://localhost", options=options, on_dead=self._store)
        app.consumer = self.consumer
        app.prefetch[TOPIC] = 32
        self._crew = _AgentTasks(app, TOPIC, decode, handle, 8, timedelta(milliseconds=5), 1)

    async def _store(self, letter: DeadLetter) -> None:
        self.letters.append(letter)

    async def run(self, values: Sequence[bytes]) -> None:
        await self.run_messages([message(offset, value) for offset, value in enumerate(values)])

    async def run_messages(self, messages: Sequence[ConsumerMessage]) -> None:
        stream = FakeStream(messages)
        task = asyncio.create_task(self._crew.pump(stream))
        try:
            await eventually(
                lambda: len(self.consumer.acknowledged) == len(messages), "all acknowledged"
            )
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_poison_is_dead_lettered_and_others_flow_on() -> None:
    """The letters have reason, topic, partition and offset; a header is their signature."""
    applied: list[str] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        if any("poison" in delivery.event for delivery in batch):
            raise Poison("undrinkable")
        applied.extend(delivery.event for delivery in batch)

    harness = Harness(handle)
    await harness.run([b"event 1", b"event poison", b"event 2", b"garbage"])
    assert applied == ["event 1", "event 2"]
    assert [letter.event for letter in harness.letters] == [b"garbage", b"event poison"]
    poison = harness.letters[1]
    assert (poison.detail, poison.signature) == ("undrinkable", "of event poison")
    assert (poison.topic, poison.partition, poison.group) == (TOPIC, 0, BRIDGE)
    assert [letter.entry_id for letter in harness.letters] == ["1000000-3", "1000000-1"]


async def test_a_failure_is_tried_again_in_process() -> None:
    """Failures are retried up to the limit, and a server's failure without limit."""
    attempts: list[int] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        attempts.append(batch[0].attempts)
        if len(attempts) < 5:
            raise Unavailable("down")
        raise ValueError("no luck")

    harness = Harness(handle)
    await harness.run([b"event"])
    assert attempts == [1, 1, 1, 1, 1, 2, 3]
    assert harness.letters[0].attempts == 3


async def test_a_message_without_a_time_is_dead_lettered_like_any_other() -> None:
    """Kafka's -1 stands for an unknown time; a header may lack its value, as in every message."""

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        raise Poison("undrinkable")

    harness = Harness(handle)
    await harness.run_messages([message(0, b"event", time=-1.0)])
    assert harness.letters[0].event == b"event"


async def test_a_message_has_no_log_position() -> None:
    """Redis assigns it; the id only says where the message is."""
    seen: list[Delivery[str]] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        seen.extend(batch)

    await Harness(handle).run([b"event 1", b"event 2"])
    assert [delivery.entry_id for delivery in seen] == ["1000000-0", "1000000-1"]
    assert seen[0].own is None
    assert seen[0].topic is Topic.CHANGED_LIVE
    assert seen[0].signature == b"of event 1"


async def test_messages_are_acknowledged_in_their_order() -> None:
    """A committed offset behind a message in flight would lose that message at a crash."""
    acknowledged: list[list[int]] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        await eventually(lambda: len(harness.letters) == 1, "the garbage is dead-lettered")
        acknowledged.append([*harness.consumer.acknowledged])

    harness = Harness(handle)
    await harness.run([b"event 1", b"garbage", b"event 2"])
    assert acknowledged == [[]]
    assert harness.consumer.acknowledged == [0, 1, 2]
