"""Waits for a condition instead of a time, with limits that suit the machine.

A limit ends a wait for an event that never happens. It is written for a quiet machine, and is
multiplied by ``slowness`` while other processes use the processors.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from functools import cache
from time import perf_counter
from typing import TypeVar, overload

__all__ = ["eventually", "patience", "slowness", "within"]

Answer = TypeVar("Answer")

_STEPS = 4_000_000
_FIRST_PAUSE_SECONDS = 0.008
_PAUSE_GROWTH = 1.3
"""Most conditions ask a server, which costs milliseconds each time."""
_QUIET_SECONDS = 0.15
"""Duration of the steps on a quiet machine with two slow cores, for which limits are chosen."""


def slowness() -> float:
    """Factor by which work takes longer than on a quiet machine; at least 1.

    It is the greatest of three figures: the time of some fixed work at the beginning of this run,
    and for each processor the tasks that wait (the load of the last minute) and the test processes
    of the run, whose load is not seen when it begins.
    """
    test_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    tasks_per_processor = max(os.getloadavg()[0], test_processes) / (os.cpu_count() or 1)
    return max(1.0, _seconds_of_fixed_work() / _QUIET_SECONDS, tasks_per_processor)


@cache
def _seconds_of_fixed_work() -> float:
    begun = perf_counter()
    for _ in range(_STEPS):
        pass
    return perf_counter() - begun


def patience(seconds: float) -> float:
    """Limit in seconds, extended by the current load."""
    return seconds * slowness()


def within(seconds: float) -> asyncio.Timeout:
    """``asyncio.timeout``, extended by ``patience``."""
    return asyncio.timeout(patience(seconds))


@overload
async def eventually(
    condition: Callable[[], Awaitable[Answer]],
    description: str,
    *,
    timeout: float = 10.0,
    every: float = 0.1,
) -> Answer: ...


@overload
async def eventually(
    condition: Callable[[], Answer],
    description: str,
    *,
    timeout: float = 10.0,
    every: float = 0.1,
) -> Answer: ...


async def eventually(
    condition: Callable[[], Answer | Awaitable[Answer]],
    description: str,
    *,
    timeout: float = 10.0,
    every: float = 0.1,
) -> Answer:
    """First true answer of ``condition``, asked often at first, and later every ``every`` seconds.

    ``timeout``: seconds on a quiet machine; a rising load prolongs a wait in progress.

    Raises:
        AssertionError: not true in time; names the condition and its last answer.
    """
    answer: Answer | None = None
    pause = _FIRST_PAUSE_SECONDS
    begun = asyncio.get_running_loop().time()
    try:
        async with within(timeout) as limit:
            while True:
                asked = condition()
                answer = await asked if inspect.isawaitable(asked) else asked
                if answer:
                    return answer
                pause = min(every, pause * _PAUSE_GROWTH)
                await asyncio.sleep(pause)
                limit.reschedule(begun + patience(timeout))
    except TimeoutError:
        limits = f"{timeout} s (x {slowness():.1f} on this machine)"
        raise AssertionError(f"not within {limits}: {description} (last: {answer!r})") from None
