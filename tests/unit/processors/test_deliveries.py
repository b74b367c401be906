"""A delivery is settled at the subscription of its stream, once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from faust.types import TP

from events.names import Lane, LogPosition, Topic
from events.streams.dead_letters import DeadLetter
from events.transport import InFlightEntry, Statistics
from events.transport.consumer_group import Group
from events.transport.subscription import Subscription, Window
from processors.deliveries import Delivery

STREAM = TP(Topic.CHANGED_LIVE.value, 0)
POSITION = LogPosition.of_entry(Lane.LIVE, 0, "1000-1")


class FakeGroup:
    """Group that stores dead letters in a list."""

    name = "indexer"
    stream = "stream"
    lease = timedelta(seconds=6)

    def __init__(self) -> None:
        self.letters: list[tuple[str, Any]] = []

    async def dead_letter(self, entry_id: str, fields: dict[str, Any]) -> None:
        self.letters.append((entry_id, fields))


class Stream:
    """A subscription with one delivery; ``reported`` has the letters passed to the hook."""

    def __init__(self) -> None:
        self.group = FakeGroup()
        self.reported: list[DeadLetter] = []
        self.subscription = Subscription(
            cast("Group", self.group),
            Window(4),
            Statistics(),
            wake=lambda _: None,
            on_dead=self._report,
            retry_delay=timedelta(seconds=1),
        )
        entry = InFlightEntry(STREAM, "1000-1", {b"event": b"{}"}, attempt=3)
        self.subscription.add(entry)
        self.delivery = Delivery(
            "event", Topic.CHANGED_LIVE, entry, POSITION, POSITION, self.subscription
        )

    async def _report(self, letter: DeadLetter) -> None:
        self.reported.append(letter)


async def test_the_first_outcome_counts() -> None:
    """An acknowledged event can't be retried or dead-lettered any more."""
    stream = Stream()
    stream.delivery.acknowledge()
    assert stream.delivery.settled
    await stream.delivery.retry(timedelta(), counted=True)
    await stream.delivery.reject("Poison", "too late")
    statistics = stream.subscription.statistics
    assert (statistics.acknowledged, statistics.retried, statistics.dead) == (1, 0, 0)
    assert not stream.group.letters


async def test_a_rejected_event_is_reported_and_stored() -> None:
    """The letter has the reason and the number of attempts."""
    stream = Stream()
    await stream.delivery.reject("Poison", "undrinkable")
    assert stream.delivery.settled
    [letter] = stream.reported
    assert (letter.error, letter.detail, letter.attempts) == ("Poison", "undrinkable", 3)
    assert stream.group.letters == [("1000-1", letter.to_fields())]
    assert (stream.subscription.window.in_flight, stream.subscription.in_flight) == (0, {})


async def test_an_event_that_another_worker_took_over_is_settled() -> None:
    """So this worker doesn't handle it again after a failed batch."""
    stream = Stream()
    assert stream.subscription.drop_taken_over(set()) == ["1000-1"]
    assert stream.delivery.settled
    await stream.delivery.reject("Poison", "too late")
    assert not stream.reported
