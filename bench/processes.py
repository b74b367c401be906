"""Cost of child processes: processor time and memory of each with its descendants.

It is read from ``/proc``, so it is available on Linux only; elsewhere the result is empty.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "CpuClock",
    "Usage",
    "cpu_s_below",
    "memory_mb",
    "memory_mb_below",
    "peak_mb",
    "pids_below",
    "pids_of_children",
    "usage_by_role",
]

_PROC = Path("/proc")
_ROLES = {"postgres": "postgres", "redis-server": "redis", "gateway.main": "worker"}
"""Role by a word of the command line."""

_PARTS = {"postgres": "postgres", "redis-server": "redis", "worker": "worker", "serve": "gateway"}
"""Part of a running ``headrace up`` by a word of the command line; the rest are commands."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time and memory of a process.

    ``cpu_s`` counts from its start and includes ended children. ``rss_bytes`` is the resident
    memory of the process itself, ``children_rss_bytes`` that of its descendants.
    """

    pid: int
    cpu_s: float
    rss_bytes: int
    children_rss_bytes: int


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    cpu_s: float
    rss_bytes: int


@dataclass(slots=True)
class CpuClock:
    """Processor time of a running ``headrace up``, of this process and of its other children.

    Children count once they have ended.
    """

    pid: int
    _started: Mapping[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to count."""
        self._started = self._read()

    def seconds(self) -> dict[str, float]:
        """Processor seconds since ``start`` by part.

        ``client`` is this process, and ``commands`` are also the children that it has run.
        ``total`` is without ``client``, which may do nothing but wait and look.
        """
        parts = {part: now - self._started.get(part, 0.0) for part, now in self._read().items()}
        return {**parts, "total": sum(parts.values()) - parts["client"]}

    def _read(self) -> dict[str, float]:
        seconds, own = cpu_s_below(self.pid), os.times()
        commands = seconds.get("commands", 0.0) + own.children_user + own.children_system
        return {**seconds, "commands": commands, "client": own.user + own.system}


def usage_by_role() -> dict[str, list[Usage]]:
    """Return the usage of each child that is a server or a worker, by role, oldest first."""
    processes = _processes()
    children = _children(processes)
    usage: dict[str, list[Usage]] = defaultdict(list)
    for pid in children[os.getpid()]:
        role = _role(pid)
        if role is not None:
            below = list(_descendants(pid, children))
            usage[role].append(
                Usage(
                    pid,
                    sum(processes[member].cpu_s for member in (pid, *below)),
                    processes[pid].rss_bytes,
                    sum(processes[descendant].rss_bytes for descendant in below),
                )
            )
    return dict(usage)


def cpu_s_below(pid: int) -> dict[str, float]:
    """Return the processor seconds of ``headrace up`` and its descendants, by part.

    A worker's parsers belong to it. ``commands`` are those that it runs, and ``up`` itself.
    """
    processes = _processes()
    children = _children(processes)
    seconds: dict[str, float] = defaultdict(float)
    pending = [(pid, "commands")]
    while pending:
        member, inherited = pending.pop()
        role = _role(member, _PARTS) or inherited
        seconds[role] += processes[member].cpu_s if member in processes else 0.0
        pending += [(child, role) for child in children.get(member, ())]
    return dict(seconds)


def pids_below(pid: int, part: str) -> list[int]:
    """Return the process ids of a part of ``headrace up``, such as ``worker``."""
    descendants = _descendants(pid, _children(_processes()))
    return [member for member in descendants if _role(member, _PARTS) == part]


def pids_of_children(pid: int, role: str | None = None) -> list[int]:
    """Return the process ids of a process's descendants, or only of its children with a role."""
    children = _children(_processes())
    if role is None:
        return list(_descendants(pid, children))
    return [
        member
        for child in children[pid]
        if _role(child) == role
        for member in (child, *_descendants(child, children))
    ]


def memory_mb_below(pid: int) -> float:
    """Return the memory of a process and its descendants, see ``memory_mb``."""
    return memory_mb((pid, *pids_of_children(pid)))


def memory_mb(pids: Iterable[int]) -> float:
    """Return the memory of processes, in units of 1,000,000 bytes.

    A page that several processes share counts once over all of them.
    """
    return sum(map(_pss_mb, pids))


def _pss_mb(pid: int) -> float:
    try:
        rollup = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(rollup.partition("\nPss:")[2].split()[0]) * 1024 / 1e6


def _children(processes: Mapping[int, _Process]) -> Mapping[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for pid in sorted(processes):
        children[processes[pid].parent].append(pid)
    return children


def _processes() -> Mapping[int, _Process]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    processes: dict[int, _Process] = {}
    for file in _PROC.glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        cpu_s = sum(map(int, fields[11:15])) / ticks
        pid, parent, rss_bytes = int(file.parent.name), int(fields[1]), int(fields[21]) * page
        processes[pid] = _Process(parent, cpu_s, rss_bytes)
    return processes


def _descendants(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _descendants(child, children)


def _role(pid: int, roles: Mapping[str, str] = _ROLES) -> str | None:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    names = [Path(word).name.split(" ")[0] for word in words]  # Redis appends its address
    return next((role for word, role in roles.items() if word in names), None)


def peak_mb(pid: int | None = None) -> float:
    """Peak of the resident memory of a process, or of this one, in units of 1,000,000 bytes.

    It is 0 if the process has ended. The system's own figure for a child includes the memory of its
    parent at the start of the child, so it is not used.
    """
    try:
        status = (_PROC / str(pid or "self") / "status").read_text()
    except OSError:
        return 0.0
    peak = status.partition("VmHWM:")[2].split()
    return round(int(peak[0]) * 1024 / 1e6, 1) if peak else 0.0
