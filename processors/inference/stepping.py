"""One thread that runs jobs in small steps, the most urgent job first."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from processors.inference.types import Urgency
from runtime.errors import Unavailable

__all__ = ["SteppedThread", "Steps"]

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A job: yields after each short piece of work, returns its result."""


@dataclass(order=True)
class _Job(Generic[T]):
    """Order: urgency, then age."""

    urgency: Urgency
    age: int
    steps: Steps[T] = field(compare=False)
    loop: asyncio.AbstractEventLoop = field(compare=False)
    future: asyncio.Future[T] = field(compare=False)
    abandoned: bool = field(default=False, compare=False)


class SteppedThread:
    """Runs jobs on one thread, switching to a more urgent one between any two steps.

    So an urgent job waits for one step of another at most, and the event loop never waits.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._wake = threading.Condition()
        self._jobs: list[_Job[Any]] = []
        self._ages = itertools.count()
        self._closed = False
        self._thread: threading.Thread | None = None

    async def run(self, steps: Steps[T], urgency: Urgency) -> T:
        """Result of a job. Cancelling stops the job before its next step.

        Raises:
            Unavailable: the thread is closed before the job is done.
        """
        loop = asyncio.get_running_loop()
        job: _Job[T] = _Job(urgency, next(self._ages), steps, loop, loop.create_future())
        self._submit(job)
        try:
            return await job.future
        finally:
            job.abandoned = True

    async def close(self) -> None:
        """Stop after the step in hand; jobs that aren't done raise ``Unavailable``."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _submit(self, job: _Job[Any]) -> None:
        with self._wake:
            if self._closed:
                raise Unavailable(f"{self._name} is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            heapq.heappush(self._jobs, job)
            self._wake.notify()

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            if self._advance(job):
                with self._wake:
                    heapq.heappush(self._jobs, job)
            # an idle thread must not keep the last job's texts and vectors alive
            del job
        for job in self._jobs:
            _fail(job, Unavailable(f"{self._name} was closed"))

    def _next_job(self) -> _Job[Any] | None:
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._jobs)
            return None if self._closed else heapq.heappop(self._jobs)

    def _advance(self, job: _Job[Any]) -> bool:
        """One step; whether there is more to do."""
        if job.abandoned:
            job.steps.close()
            return False
        try:
            next(job.steps)
        except StopIteration as done:
            _deliver(job, job.future.set_result, done.value)
            return False
        except Exception as error:  # noqa: BLE001 - it belongs to the one who waits for the job
            _fail(job, error)
            return False
        return True


def _fail(job: _Job[Any], error: Exception) -> None:
    _deliver(job, job.future.set_exception, error)


def _deliver(job: _Job[Any], settle: Callable[[Any], object], value: Any) -> None:
    def settle_once() -> None:
        if not job.future.done():
            settle(value)

    # a loop that closed in the meantime has nobody left to tell
    with contextlib.suppress(RuntimeError):
        job.loop.call_soon_threadsafe(settle_once)
