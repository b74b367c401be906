"""Memory, processor time and event-loop lag of processes, and tuning of their heaps."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.intervals import until_tick

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["LoopLag", "memory_bytes", "return_memory", "settle_heap"]

_INTERVAL = timedelta(milliseconds=500)
_IDLE_INTERVAL = timedelta(seconds=2)
_STATM = Path("/proc/self/statm")

_YOUNG_OBJECTS = 10_000
_OLDER_GENERATIONS = (20, 20)
"""Some thousand objects of a batch live until it is written. With the default (700, 10, 10) each of
them is examined many times, which takes a seventh of a worker's time."""


def memory_bytes() -> int:
    """Return the resident memory of this process alone, or its peak on systems without /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return highest if sys.platform == "darwin" else highest * 1024


class LoopLag:
    """Watches how much later than requested the event loop wakes a sleeping task."""

    def __init__(self) -> None:
        self._longest = 0.0

    def longest_seconds(self) -> float:
        """Return the longest lag since the previous call."""
        longest, self._longest = self._longest, 0.0
        return longest

    async def watch(self, stop: asyncio.Event, is_busy: Callable[[], bool]) -> None:
        """Measure until ``stop`` is set, less often while the process is not busy."""
        import asyncio  # noqa: PLC0415  # parsers import this module, but have no event loop

        now = asyncio.get_running_loop().time
        while not stop.is_set():
            interval = _INTERVAL if is_busy() else _IDLE_INTERVAL
            begun, pause = now(), until_tick(interval).total_seconds()
            # a plain sleep, since the timeout of ``wait_or_stop`` costs more than the measurement
            await asyncio.sleep(pause)
            lag = max(0.0, now() - begun - pause)
            self._longest = max(self._longest, lag)


def settle_heap(young_objects: int = _YOUNG_OBJECTS) -> None:
    """Exclude all current objects from collection; call it when everything is loaded.

    The youngest generation is examined each time it has grown by ``young_objects``. Unused memory
    is released as before; only cycles are collected a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young_objects, *_OLDER_GENERATIONS)


def return_memory() -> None:
    """Return unused memory of the heap to the system, where its C library can (glibc).

    It takes some milliseconds. Without it, a process keeps the most that it has ever used between
    two objects that still exist.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
