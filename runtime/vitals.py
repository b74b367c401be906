"""How this process is: its memory, and whether its event loop comes back in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from datetime import timedelta
from pathlib import Path

from runtime import metrics

__all__ = ["LoopLag", "memory_bytes", "processor_seconds"]

_LOOK_EVERY = timedelta(milliseconds=100)
_STATM = Path("/proc/self/statm")


def memory_bytes() -> int:
    """Resident memory of this process alone; the highest it ever had where there is no /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return highest if sys.platform == "darwin" else highest * 1024


def processor_seconds(pid: int) -> float | None:
    """What a process has used of processors since its start; None: it is gone, or not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class LoopLag:
    """Sleeps again and again, and notes how much later than asked it wakes."""

    def __init__(self) -> None:
        self._longest = 0.0

    def longest_seconds(self) -> float:
        """The longest since this was asked last."""
        longest, self._longest = self._longest, 0.0
        return longest

    async def watch(self, stop: asyncio.Event) -> None:
        """Look until ``stop`` is set."""
        now = asyncio.get_running_loop().time
        while not stop.is_set():
            begun = now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY.total_seconds()):
                    await stop.wait()
            lag = max(0.0, now() - begun - _LOOK_EVERY.total_seconds())
            self._longest = max(self._longest, lag)
            metrics.LOOP_LAG_SECONDS.observe(lag)
