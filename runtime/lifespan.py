"""Process lifetime: uvloop, stop signals, and background tasks that end with their owner."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

import structlog
import uvloop

from runtime.intervals import until_tick

__all__ = ["IdlePace", "OwnedTasks", "run", "stop_on_signals", "wait_for_tick", "wait_or_stop"]

T = TypeVar("T")
log = structlog.get_logger(__name__)

_ACTIVE_SECONDS = 20.0
_SLOWER = 10
_LOOK_EVERY = 2


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run ``main(stop)`` to its end; SIGINT and SIGTERM set ``stop``.

    Raises:
        KeyboardInterrupt: a second signal arrived during shutdown.
    """

    async def whole() -> T:
        stop = asyncio.Event()
        with stop_on_signals(stop):
            return await main(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(whole())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set ``stop`` on the first SIGINT or SIGTERM; a second one cancels the current task."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None  # a context manager of an async function runs in a task

    def heed(number: signal.Signals) -> None:
        if stop.is_set():
            log.warning("process.stopping_immediately", signal=number.name)
            main.cancel()
        log.info("process.stopping", signal=number.name)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, heed, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def wait_or_stop(stop: asyncio.Event, interval: timedelta) -> bool:
    """Wait for ``interval``, or until ``stop`` is set; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(interval.total_seconds()):
            await stop.wait()
    return stop.is_set()


async def wait_for_tick(stop: asyncio.Event, interval: timedelta) -> bool:
    """Wait as ``wait_or_stop``, but for a common tick of all tasks with this interval."""
    return await wait_or_stop(stop, until_tick(interval))


class IdlePace:
    """Pauses of a task that has something to do only for some time after events.

    A pause takes ``every`` while ``count`` has changed in the last 20 s, else eleven times as
    long, or until the count changes, for which it looks at every other time.
    """

    def __init__(self, every: timedelta, count: Callable[[], int]) -> None:
        self._every = every
        self._count = count
        self._counted = count()
        self._changed_at = monotonic()

    async def pause(self, stop: asyncio.Event) -> None:
        """Wait for the time of the next run, or until ``stop`` is set."""
        if await wait_for_tick(stop, self._every) or self._is_active():
            return
        for _ in range(_SLOWER // _LOOK_EVERY):
            if await wait_for_tick(stop, self._every * _LOOK_EVERY) or self._is_active():
                return

    def _is_active(self) -> bool:
        count = self._count()
        if count != self._counted:
            self._counted, self._changed_at = count, monotonic()
        return monotonic() - self._changed_at < _ACTIVE_SECONDS


class OwnedTasks:
    """Named tasks that end with their owner, in reverse order of their start.

    A task that fails sets ``stop``, and ``close`` raises its error, so no failure is unnoticed.
    """

    def __init__(self, stop: asyncio.Event, *, timeout: timedelta) -> None:
        self._stop = stop
        self._timeout = timeout
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start ``work``, which should end soon after ``stop`` is set."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._heed)
        self._tasks.append(task)

    async def close(self) -> None:
        """Set ``stop``, then wait for each task in turn; cancel a task that takes too long.

        Raises:
            ExceptionGroup: the errors of the tasks that failed.
        """
        self._stop.set()
        failures: list[Exception] = []
        while self._tasks:
            task = self._tasks.pop()
            error = await self._end(task)
            if error is not None:
                failures.append(error)
        if failures:
            raise ExceptionGroup("tasks failed", failures)

    async def _end(self, task: asyncio.Task[None]) -> Exception | None:
        done, _ = await asyncio.wait([task], timeout=self._timeout.total_seconds())
        if not done:
            log.warning("task.cancelled", task=task.get_name(), after=str(self._timeout))
            task.cancel()
            await asyncio.wait([task])
        if task.cancelled():
            return None
        error = task.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        return error

    def _heed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("task.failed", task=task.get_name(), error=str(task.exception()))
            self._stop.set()
