from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import pytest

from runtime import lifespan
from runtime.lifespan import OwnedTasks, run, stop_on_signals, wait_or_stop
from tests.support.waiting import patience


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_asks_to_stop(number: signal.Signals) -> None:
    """The first signal sets the stop event."""

    async def main(stop: asyncio.Event) -> str:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), patience(5))
        return "stopped in order"

    assert run(main) == "stopped in order"


async def test_second_signal_stops_at_once() -> None:
    """The second signal cancels the task."""

    async def stubborn() -> None:
        stop = asyncio.Event()
        with stop_on_signals(stop):
            os.kill(os.getpid(), signal.SIGINT)
            await stop.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.wait([task], timeout=patience(5))
    assert task.cancelled()


def test_second_signal_is_an_interrupt() -> None:
    """The second signal raises KeyboardInterrupt."""

    async def main(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run(main)


async def test_tasks_end_in_reverse_order() -> None:
    """Tasks end in reverse order of their start."""
    stop = asyncio.Event()
    ended: list[str] = []
    tasks = OwnedTasks(stop, timeout=timedelta(seconds=5))

    async def work(name: str, after: list[str]) -> None:
        await stop.wait()
        while ended != after:  # noqa: ASYNC110
            await asyncio.sleep(0)
        ended.append(name)

    tasks.start("reader", work("reader", ["writer"]))
    tasks.start("writer", work("writer", []))
    await tasks.close()
    assert ended == ["writer", "reader"]


async def test_failed_task_stops_the_process_and_is_reported() -> None:
    """A failed task sets the stop event, and closing raises its error."""
    stop = asyncio.Event()
    tasks = OwnedTasks(stop, timeout=timedelta(seconds=5))

    async def fail() -> None:
        raise ValueError("broken")

    tasks.start("fragile", fail())
    await asyncio.wait_for(stop.wait(), patience(5))
    with pytest.raises(ExceptionGroup, match="tasks failed"):
        await tasks.close()


async def test_task_that_does_not_end_is_cancelled() -> None:
    """Closing cancels a task that does not end in time."""
    tasks = OwnedTasks(asyncio.Event(), timeout=timedelta(milliseconds=10))
    tasks.start("endless", asyncio.sleep(3600))
    await asyncio.wait_for(tasks.close(), patience(5))


async def test_a_pause_ends_early_when_the_process_stops() -> None:
    """The result says which of both it was."""
    stop = asyncio.Event()
    assert not await wait_or_stop(stop, timedelta(milliseconds=1))
    pause = asyncio.create_task(wait_or_stop(stop, timedelta(hours=1)))
    await asyncio.sleep(0)
    stop.set()
    assert await asyncio.wait_for(pause, patience(5))
    assert await wait_or_stop(stop, timedelta(hours=1)), "it does not begin"


async def test_a_pause_is_short_after_events_and_long_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task pauses eleven times as long once the count has not changed for 20 s."""
    now, count = [0.0], [0]
    waits = 0

    async def wait(_stop: asyncio.Event, _interval: timedelta) -> bool:
        nonlocal waits
        waits += 1
        now[0] += 12.0
        count[0] += now[0] > 400 and waits == 4
        return False

    monkeypatch.setattr(lifespan, "monotonic", lambda: now[0])
    monkeypatch.setattr(lifespan, "wait_or_stop", wait)
    pace = lifespan.IdlePace(timedelta(seconds=12), lambda: count[0])
    lengths = []
    for now[0] in (0.0, 5.0, 200.0, 400.0):
        waits = 0
        await pace.pause(asyncio.Event())
        lengths.append(waits)
    assert lengths == [1, 1, 6, 4]  # of the last five waits, each is two intervals long
