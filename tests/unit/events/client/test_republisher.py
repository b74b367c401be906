"""Log positions of durable events, and their traces in Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from events.client.republisher import is_lost
from events.client.sender import Trace
from events.names import Lane, LogPosition
from events.outbox import WaitingEvent

KEPT_AT = datetime(2026, 11, 21, 6, 30, tzinfo=UTC)
FINGERPRINT = b"0123456789abcdE+"
MILLISECONDS = int(KEPT_AT.timestamp() * 1000)


def waiting(number: int = 1, position: int | None = None, lane: Lane = Lane.BULK) -> WaitingEvent:
    return WaitingEvent("docs", f"event-{number}", lane, 3, position, number, KEPT_AT)


def test_a_known_place_is_the_place() -> None:
    """An event that has a position keeps it, whatever lane it was kept for."""
    place = LogPosition.of_entry(Lane.LIVE, 3, "1700000000000-5")
    assert waiting(position=place.position).log_position == place


def test_a_derived_place_lies_within_the_millisecond() -> None:
    """A derived position follows all entries of its millisecond and precedes the next one."""
    number = waiting().log_position.position
    assert number > LogPosition.of_entry(Lane.LIVE, 3, f"{MILLISECONDS}-500000").position
    assert number < LogPosition.of_entry(Lane.BULK, 3, f"{MILLISECONDS + 1}-0").position


@pytest.mark.parametrize("first", [1, 2**19 - 2, 2**40])
def test_derived_places_differ(first: int) -> None:
    """Derived positions of 1,000 events of one millisecond differ."""
    places = {waiting(first + n).log_position.position for n in range(1000)}
    assert len(places) == 1000


def test_a_place_of_the_past_is_exact() -> None:
    """A derived position is exact to the millisecond."""
    for milliseconds in range(0, 1000, 7):
        kept_at = KEPT_AT + timedelta(milliseconds=milliseconds)
        event = WaitingEvent("docs", "e", Lane.LIVE, 0, None, 1, kept_at)
        assert event.log_position.entry_id.partition("-")[0] == str(MILLISECONDS + milliseconds)


@pytest.mark.parametrize(
    ("raw", "token", "entry"),
    [
        (None, None, None),
        (b"live:3:5-0", "live:3:5-0", "live:3:5-0"),
        (b"live:3:5-0 9-1", "live:3:5-0", "live:3:9-1"),
        (b"live:3:5-0 " + FINGERPRINT, "live:3:5-0", "live:3:5-0"),
        (b"live:3:5-0 9-1 " + FINGERPRINT, "live:3:5-0", "live:3:9-1"),
        (b"live:3:5-0 of no entry", None, None),
    ],
)
def test_what_redis_remembers(raw: bytes | None, token: str | None, entry: str | None) -> None:
    """A trace has the token and the entry that currently holds the event."""
    trace = Trace.parse(raw)
    assert (trace.token, trace.entry) == (token, entry)


@pytest.mark.parametrize(
    ("raw", "archived", "lost"),
    [
        (None, {}, True),
        (b"live:3:5-0", {}, False),
        (b"live:3:5-0", {"live:3": "4-9"}, False),
        (b"live:3:5-0", {"live:3": "5-0"}, True),
        (b"live:3:5-0", {"bulk:3": "9-0", "live:2": "9-0"}, False),
        (b"live:3:5-0 9-1", {"live:3": "9-0"}, False),
        (b"live:3:5-0 9-1", {"live:3": "9-1"}, True),
    ],
)
def test_which_events_never_come_to_the_archive(
    raw: bytes | None, archived: dict[str, str], lost: bool
) -> None:
    """An event is lost if Redis has no trace of it, or if the archiver has passed its entry."""
    assert is_lost(Trace.parse(raw), archived) is lost


@pytest.mark.parametrize(
    ("raw", "is_other"),
    [
        (b"", False),
        (b"live:3:5-0", False),
        (b"live:3:5-0 " + FINGERPRINT, False),
        (b"live:3:5-0 " + FINGERPRINT[::-1], True),
        (b"live:3:5-0 9-1 " + FINGERPRINT[::-1], True),
    ],
)
def test_a_record_of_another_change_is_recognised(raw: bytes, is_other: bool) -> None:
    """Without two fingerprints, a record counts as that of the event."""
    trace = Trace.parse(raw or None)
    assert trace.is_of_other(FINGERPRINT.decode()) is is_other
    assert not trace.is_of_other("")
