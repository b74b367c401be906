"""What our child processes cost: processor time and memory of each with its descendants.

Read from ``/proc``, so on Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "usage_by_role"]

_PROC = Path("/proc")
_ROLES = {"postgres": "postgres", "redis-server": "redis", "gateway.main": "worker"}
"""Role by a word of the command line."""


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu_s``: processor seconds since the start, those of ended children included.

    ``rss_bytes``: resident memory of the process itself. ``children_rss_bytes``: of its children.
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


def usage_by_role() -> dict[str, list[Usage]]:
    """Usage of each of our children that is a server or a worker, by role, oldest first."""
    processes = dict(_processes())
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in sorted(processes.items()):
        children[process.parent].append(pid)
    found: dict[str, list[Usage]] = defaultdict(list)
    for pid in children[os.getpid()]:
        role = _role(pid)
        if role is not None:
            below = list(_descendants(pid, children))
            found[role].append(
                Usage(
                    pid,
                    sum(processes[one].cpu_s for one in (pid, *below)),
                    processes[pid].rss_bytes,
                    sum(processes[one].rss_bytes for one in below),
                )
            )
    return dict(found)


def _processes() -> Iterator[tuple[int, _Process]]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for file in _PROC.glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        cpu_s = sum(map(int, fields[11:15])) / ticks
        yield int(file.parent.name), _Process(int(fields[1]), cpu_s, int(fields[21]) * page)


def _descendants(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _descendants(child, children)


def _role(pid: int) -> str | None:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    names = {Path(word).name.split(" ")[0] for word in words}  # Redis adds its address
    return next((role for word, role in _ROLES.items() if word in names), None)
