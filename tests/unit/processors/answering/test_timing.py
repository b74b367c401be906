"""Time left for a question, with clocks that differ."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from events.models import Query, QueryRequested
from processors.answering.timing import TimeLimiter, time_left
from runtime import protocol_limits
from tests.support.waiting import within

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT = timedelta(seconds=10)
SECOND = timedelta(seconds=1)


def _entry_id(taken_at: datetime) -> str:
    return f"{int(taken_at.timestamp() * 1000)}-0"


def _query(time: datetime | None, deadline: datetime | None) -> QueryRequested:
    data = Query(project="p", text="q", reply_to="r", deadline=deadline)
    return QueryRequested(data=data) if time is None else QueryRequested(time=time, data=data)


@pytest.mark.parametrize("skew", [timedelta(hours=-1), timedelta(), timedelta(hours=1)])
def test_the_askers_clock_may_be_wrong(skew: timedelta) -> None:
    """The time left is measured by the server's clock, whatever the asker's clock shows."""
    asked_at = NOW - 3 * SECOND + skew
    query = _query(asked_at, asked_at + 5 * SECOND)
    assert time_left(query, _entry_id(NOW - 3 * SECOND), DEFAULT, NOW) == 2 * SECOND


@pytest.mark.parametrize(
    ("time", "deadline", "left"),
    [
        (NOW, None, DEFAULT),
        (None, None, DEFAULT),
        (None, NOW + SECOND, SECOND),
        (NOW, NOW - SECOND, -SECOND),
        (NOW, datetime.max.replace(tzinfo=UTC), protocol_limits.QUERY_DEADLINE),
        (None, datetime.max.replace(tzinfo=UTC), protocol_limits.QUERY_DEADLINE),
        (datetime.max.replace(tzinfo=UTC), None, DEFAULT),
    ],
)
def test_time_left(time: datetime | None, deadline: datetime | None, left: timedelta) -> None:
    """The default is used without a deadline, a far one is capped, and a past one is negative."""
    assert time_left(_query(time, deadline), _entry_id(NOW), DEFAULT, NOW) == left


def test_an_entry_from_the_future_gains_nothing() -> None:
    """An entry id in the future does not extend the time."""
    assert time_left(_query(NOW, None), "999999999999999-0", DEFAULT, NOW) == DEFAULT


async def test_work_that_clears_up_slowly_is_not_waited_for() -> None:
    """The limit holds for work that delays its cancellation."""
    cleared_up = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await cleared_up.wait()

    async with within(5):
        with pytest.raises(TimeoutError):
            await TimeLimiter().run(stubborn(), timedelta(milliseconds=10))
    cleared_up.set()
