"""Processor cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from runtime.settings import Settings

__all__ = [
    "model_threads",
    "parser_processes",
    "quota_cores",
    "replay_processes",
    "usable_cores",
]

_CORES_PER_SHARE = 4
"""A process of a replay keeps one core busy, its parsers another one, and Postgres a part."""
_MOST_SHARES = 4
_MOST_MODEL_THREADS = 8
_MOST_PARSERS = 8
_MEMBERSHIPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def model_threads(settings: Settings, workers: int = 1) -> int:
    """Threads of the local model in each of ``workers`` processes on this host, at least 1."""
    if settings.model_threads != "auto":
        return settings.model_threads
    return max(1, min(_MOST_MODEL_THREADS, usable_cores()) // workers)


def parser_processes(settings: Settings, workers: int = 1) -> int:
    """Parser processes of each of ``workers`` processes on this host, at least 1."""
    if settings.chunking_processes != "auto":
        return settings.chunking_processes
    return max(1, min(_MOST_PARSERS, usable_cores()) // workers)


def replay_processes() -> int:
    """Processes that build an index from the log at once on this host, at least 1."""
    return max(1, min(_MOST_SHARES, usable_cores() // _CORES_PER_SHARE))


def usable_cores() -> int:
    """Cores by affinity and by cgroup quota, whichever are fewer, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = quota_cores(_MEMBERSHIPS, _GROUPS)
    return cores if quota is None else max(1, min(cores, int(quota)))


def quota_cores(memberships: Path, groups: Path) -> float | None:
    """Return the number of cores that the cgroups of the process allow, or None without a limit.

    A limit of any group above the process applies too.

    Args:
        memberships: a file like ``/proc/self/cgroup``.
        groups: mount point of the cgroups.
    """
    try:
        lines = memberships.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas = [quota for line in lines for quota in _quotas(line, groups)]
    return min(quotas, default=None)


def _quotas(line: str, groups: Path) -> Iterator[float]:
    """Yield limits of the groups of one line: ``0::/path`` (v2) or ``4:cpu,cpuacct:/path`` (v1)."""
    _, _, remainder = line.partition(":")
    controllers, _, path = remainder.partition(":")
    if controllers and "cpu" not in controllers.split(","):
        return
    # inside a container the path may be that of the host, while only the root is mounted
    root = groups / "cpu" if controllers else groups
    group = root / path.strip("/")
    for directory in (group, *group.parents):
        quota = _quota_v1(directory) if controllers else _quota_v2(directory)
        if quota is not None:
            yield quota
        if directory == root:
            return


def _quota_v2(directory: Path) -> float | None:
    quota, period = _numbers(directory / "cpu.max", 2)
    return quota / period if quota > 0 and period > 0 else None


def _quota_v1(directory: Path) -> float | None:
    (quota,), (period,) = (
        _numbers(directory / f"cpu.cfs_{part}_us", 1) for part in ("quota", "period")
    )
    return quota / period if quota > 0 and period > 0 else None


def _numbers(path: Path, count: int) -> list[int]:
    """Numbers of a file, -1 for each that is missing or not a number (``max``)."""
    try:
        words = path.read_text(encoding="utf-8").split()
    except OSError:
        words = []
    numbers = [int(word) if word.isdecimal() else -1 for word in words]
    return [*numbers, *[-1] * count][:count]
