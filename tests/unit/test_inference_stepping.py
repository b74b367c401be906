from __future__ import annotations

import asyncio
import threading

import pytest

from processors.inference.local import length_sorted_batches
from processors.inference.stepping import SteppedThread, Steps
from processors.inference.types import Urgency
from runtime.errors import Unavailable


def _logging(log: list[str], name: str, steps: int) -> Steps[str]:
    for step in range(steps):
        log.append(f"{name}{step}")
        yield
    return name


def _waiting(started: threading.Event, release: threading.Event) -> Steps[None]:
    started.set()
    assert release.wait(10)
    yield


async def test_the_most_urgent_job_goes_first_between_any_two_steps() -> None:
    """Jobs that wait are taken by urgency, then by age."""
    thread, started, release = SteppedThread("test"), threading.Event(), threading.Event()
    log: list[str] = []
    first = asyncio.create_task(thread.run(_waiting(started, release), Urgency.QUERY))
    await asyncio.to_thread(started.wait, 10)
    rest = [
        asyncio.create_task(thread.run(_logging(log, name, 2), urgency))
        for name, urgency in (
            ("bulk", Urgency.BULK),
            ("live", Urgency.LIVE),
            ("query", Urgency.QUERY),
            ("later", Urgency.BULK),
        )
    ]
    await asyncio.sleep(0)
    release.set()
    assert await asyncio.gather(first, *rest) == [None, "bulk", "live", "query", "later"]
    await thread.close()
    names = ("query", "live", "bulk", "later")
    assert log == [f"{name}{step}" for name in names for step in range(2)]


async def test_closing_fails_the_jobs_that_wait() -> None:
    """Nobody waits for ever on a thread that has ended."""
    thread, started, release = SteppedThread("test"), threading.Event(), threading.Event()
    first = asyncio.create_task(thread.run(_waiting(started, release), Urgency.BULK))
    await asyncio.to_thread(started.wait, 10)
    closing = asyncio.create_task(thread.close())
    await asyncio.sleep(0)
    release.set()
    await closing
    with pytest.raises(Unavailable, match="closed"):
        await first
    with pytest.raises(Unavailable, match="closed"):
        await thread.run(_logging([], "x", 1), Urgency.BULK)


async def test_an_error_in_a_job_reaches_its_caller_only() -> None:
    """The thread survives a job that raises."""

    def broken() -> Steps[None]:
        yield
        raise ValueError("broken")

    thread = SteppedThread("test")
    with pytest.raises(ValueError, match="broken"):
        await thread.run(broken(), Urgency.BULK)
    assert await thread.run(_logging([], "fine", 1), Urgency.BULK) == "fine"
    await thread.close()


def test_batches_hold_every_text_once_and_stay_in_the_budget() -> None:
    """Padding is counted: rows times the longest row never exceeds the budget."""
    lengths = [3, 250, 7, 7, 100, 90, 1, 600]
    batches = list(length_sorted_batches(lengths, 256))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert batches[-1] == [7]
    for batch in batches[:-1]:
        assert len(batch) * max(lengths[index] for index in batch) <= 256
