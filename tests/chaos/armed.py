"""The command line with one kill point armed: ``python armed.py POINT PASS VICTIM ARGUMENTS…``.

At the given pass of the point (from 1) it kills what it was told to as the kernel would: itself
(VICTIM 0), or the Postgres server of this process id with all its backends. Batches are small, so
that a small corpus has many passes.
"""

from __future__ import annotations

import os
import signal
import sys

from gateway.main import run
from processors.replaying import building
from runtime.kill_points import arm
from store import dropping
from tests.support.processes import tree

BATCH_DOCUMENTS = 16
BATCH_ROWS = 100


def main(point: str, passes: int, victim: int, arguments: list[str]) -> None:
    """Never returns."""
    building.BATCH_DOCUMENTS = BATCH_DOCUMENTS
    dropping._BATCH_ROWS = BATCH_ROWS
    left = passes

    def strike(name: str) -> None:
        nonlocal left
        left -= name == point
        if name == point and left == 0:
            _kill(victim)

    arm(strike)
    sys.argv = ["headrace", *arguments]
    run()


def _kill(victim: int) -> None:
    if victim == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    for pid in sorted(tree(victim), key=lambda pid: pid != victim):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
