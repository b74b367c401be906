"""Costs of child processes, read from ``/proc``."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from time import process_time

import pytest

from bench import processes
from bench.processes import CpuClock, cpu_s_below, memory_mb_below, usage_by_role

BURNING = """
import subprocess, sys, time
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < .3: pass"])
while time.process_time() < .3: pass
print("burnt", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_worker_costs_what_it_and_its_ended_children_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cost of a worker includes its ended children, and a worker that ended is not listed."""
    command = [sys.executable, "-c", BURNING, "gateway.main", "worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        everything = processes._processes

        def of_this_test() -> dict[int, processes._Process]:
            """The process and its child: earlier tests may have left others that are ending."""
            seen = everything()
            return {pid: seen[pid] for pid in seen.keys() & {os.getpid(), child.pid}}

        monkeypatch.setattr(processes, "_processes", of_this_test)
        [usage] = usage_by_role()["worker"]
        assert usage.pid == child.pid
        assert 0.5 <= usage.cpu_s < 5
        assert usage.rss_bytes > 2**20
        assert cpu_s_below(child.pid) == {"worker": usage.cpu_s}
        assert cpu_s_below(os.getpid())["worker"] == usage.cpu_s
        assert 1 < memory_mb_below(child.pid) < 100
        child.communicate()
    assert "worker" not in usage_by_role()


def test_a_process_that_begins_during_a_look_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server forks at any moment; its costs are those of the processes that were seen."""
    server, session = 1_000_001, 1_000_002
    looks = count(1)

    def seen() -> dict[int, processes._Process]:
        parents = {server: os.getpid(), session: server}
        return {
            pid: processes._Process(parent, 1.0, 2**20)
            for pid, parent in [*parents.items()][: next(looks)]
        }

    monkeypatch.setattr(processes, "_processes", seen)
    monkeypatch.setattr(processes, "_role", lambda *_: "postgres")
    [usage] = usage_by_role()["postgres"]
    assert (usage.pid, usage.cpu_s, usage.children_rss_bytes) == (server, 1.0, 0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_total_has_the_commands_of_this_process_without_the_process_itself() -> None:
    """A command that this process runs beside a deployment is a part of the cost."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as deployment:
        clock = CpuClock(deployment.pid)
        clock.start()
        command = "import time\nwhile time.process_time() < .3: pass"
        subprocess.run([sys.executable, "-c", command], check=True)
        end = process_time() + 0.2
        while process_time() < end:
            pass
        seconds = clock.seconds()
    # the kernel counts in ticks of 10 ms
    assert seconds["commands"] > 0.25
    assert seconds["client"] > 0.15
    assert seconds["total"] == pytest.approx(seconds["commands"], abs=0.05)
