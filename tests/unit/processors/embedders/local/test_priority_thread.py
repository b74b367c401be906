from __future__ import annotations

import asyncio
import threading

import pytest

from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import length_sorted_batches
from processors.embedders.local.priority_thread import SteppedThreads, Steps
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


async def _occupied(
    threads: SteppedThreads, urgency: Urgency, release: threading.Event
) -> asyncio.Task[None]:
    """Start a job that keeps one thread busy until the release."""
    started = threading.Event()
    job = asyncio.create_task(threads.run(_waiting(started, release), urgency))
    assert await asyncio.to_thread(started.wait, 10)
    return job


async def test_the_most_urgent_job_goes_first_between_any_two_steps() -> None:
    """Waiting jobs run by urgency, then by age."""
    threads = SteppedThreads("test")
    bulk_release, urgent_release = threading.Event(), threading.Event()
    first = await _occupied(threads, Urgency.BULK, bulk_release)
    urgent = await _occupied(threads, Urgency.QUERY, urgent_release)
    log: list[str] = []
    rest = [
        asyncio.create_task(threads.run(_logging(log, name, 2), urgency))
        for name, urgency in (
            ("bulk", Urgency.BULK),
            ("live", Urgency.LIVE),
            ("query", Urgency.QUERY),
            ("later", Urgency.BULK),
        )
    ]
    await asyncio.sleep(0)
    bulk_release.set()
    assert await asyncio.gather(first, *rest) == [None, "bulk", "live", "query", "later"]
    urgent_release.set()
    await urgent
    await threads.close()
    names = ("query", "live", "bulk", "later")
    assert log == [f"{name}{step}" for name in names for step in range(2)]


async def test_an_urgent_job_finds_a_thread_while_all_others_are_in_a_bulk_step() -> None:
    """An urgent job gets a thread although bulk jobs fill all the others."""
    threads, release = SteppedThreads("test", 2), threading.Event()
    bulk = [await _occupied(threads, Urgency.BULK, release) for _ in range(2)]
    late = asyncio.create_task(threads.run(_logging([], "late", 1), Urgency.BULK))
    for urgency in (Urgency.QUERY, Urgency.LIVE):
        assert await threads.run(_logging([], "urgent", 3), urgency) == "urgent"
    assert not any(task.done() for task in (*bulk, late))
    release.set()
    assert await asyncio.gather(late, *bulk) == ["late", None, None]
    await threads.close()


async def test_closing_fails_the_jobs_that_wait() -> None:
    """Closing fails the running job and later ones."""
    thread, started, release = SteppedThreads("test"), threading.Event(), threading.Event()
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
    """An error in a job is raised to its caller, and the thread still works."""

    def broken() -> Steps[None]:
        yield
        raise ValueError("broken")

    thread = SteppedThreads("test")
    with pytest.raises(ValueError, match="broken"):
        await thread.run(broken(), Urgency.BULK)
    assert await thread.run(_logging([], "fine", 1), Urgency.BULK) == "fine"
    await thread.close()


def test_batches_hold_every_text_once_and_stay_in_the_budget() -> None:
    """Batches hold every text once, and rows times the longest row stays in the budget."""
    lengths = [3, 250, 7, 7, 100, 90, 1, 600]
    batches = list(length_sorted_batches(lengths, 256))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert batches[-1] == [7]
    for batch in batches[:-1]:
        assert len(batch) * max(lengths[index] for index in batch) <= 256
