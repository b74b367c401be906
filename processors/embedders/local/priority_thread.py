"""Threads that run jobs in small steps, the most urgent job first."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from processors.embedders.embedder import Urgency
from runtime.errors import Unavailable

__all__ = ["SteppedThreads", "Steps"]

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A job: it yields after each short piece of work, and returns its result."""


@dataclass(order=True)
class _Job(Generic[T]):
    """A job in the queue, ordered by urgency, then age."""

    urgency: Urgency
    age: int
    steps: Steps[T] = field(compare=False)
    loop: asyncio.AbstractEventLoop = field(compare=False)
    future: asyncio.Future[T] = field(compare=False)
    is_cancelled: bool = field(default=False, compare=False)


class SteppedThreads:
    """Runs jobs on threads that switch to a more urgent job between any two steps.

    A job runs on one thread at a time. One additional thread does not run bulk jobs, so that an
    urgent job starts at once, or waits for at most one step of another urgent job.

    Args:
        name: name of the threads, in errors and in lists of threads.
        count: number of threads that run any job.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._name = name
        self._wake = threading.Condition()
        self._jobs: list[_Job[Any]] = []
        self._ages = itertools.count()
        self._closed = False
        limits = [*[Urgency.BULK] * count, Urgency.LIVE]
        self._threads = [
            threading.Thread(target=self._work, args=(limit,), name=name, daemon=True)
            for limit in limits
        ]
        self._started = False

    async def run(self, steps: Steps[T], urgency: Urgency) -> T:
        """Run a job and return its result. Cancelling stops the job before its next step.

        Raises:
            Unavailable: the threads are closed before the job is done.
        """
        loop = asyncio.get_running_loop()
        job: _Job[T] = _Job(urgency, next(self._ages), steps, loop, loop.create_future())
        self._submit(job)
        try:
            return await job.future
        finally:
            job.is_cancelled = True

    async def close(self) -> None:
        """Stop after the running steps; unfinished jobs raise ``Unavailable``."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._started:
            await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
        for job in self._jobs:
            _fail(job, Unavailable(f"{self._name} was closed"))

    def _submit(self, job: _Job[Any]) -> None:
        with self._wake:
            if self._closed:
                raise Unavailable(f"{self._name} is closed")
            if not self._started:
                self._started = True
                for thread in self._threads:
                    thread.start()
            self._push(job)

    def _push(self, job: _Job[Any]) -> None:
        heapq.heappush(self._jobs, job)
        # notify all: a single thread might be the one that does not run bulk jobs
        self._wake.notify_all()

    def _work(self, limit: Urgency) -> None:
        while (job := self._next_job(limit)) is not None:
            if self._advance(job):
                with self._wake:
                    self._push(job)
            # an idle thread must not keep the last job's texts and vectors alive
            del job

    def _next_job(self, limit: Urgency) -> _Job[Any] | None:
        with self._wake:
            self._wake.wait_for(
                lambda: self._closed or (self._jobs and self._jobs[0].urgency <= limit)
            )
            return None if self._closed else heapq.heappop(self._jobs)

    def _advance(self, job: _Job[Any]) -> bool:
        """Run one step; return whether there is more to do."""
        if job.is_cancelled:
            job.steps.close()
            return False
        try:
            next(job.steps)
        except StopIteration as done:
            _deliver(job, job.future.set_result, done.value)
            return False
        except Exception as error:  # noqa: BLE001 - raised in the task that waits for the job
            _fail(job, error)
            return False
        return True


def _fail(job: _Job[Any], error: Exception) -> None:
    _deliver(job, job.future.set_exception, error)


def _deliver(job: _Job[Any], settle: Callable[[Any], object], value: Any) -> None:
    def settle_once() -> None:
        if not job.future.done():
            settle(value)

    # the loop may be closed, and then no task waits for the result
    with contextlib.suppress(RuntimeError):
        job.loop.call_soon_threadsafe(settle_once)
