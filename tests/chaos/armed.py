"""The command line, armed: ``python armed.py POINT PASS VICTIM SIGNAL ARGUMENTS…``.

At the given pass (from 1) of a kill point it sends the signal to itself (VICTIM 0), or to the
Postgres server of this process id and all its backends. Batches are small, so that a small corpus
has many passes.
"""

from __future__ import annotations

import os
import sys

from gateway.main import run
from processors.replaying import building
from runtime.kill_points import arm
from store import dropping
from tests.support.processes import tree

__all__ = ["arm_with"]

BATCH_DOCUMENTS = 16
BATCH_ROWS = 100


def main(point: str, passes: int, victim: int, number: int) -> None:
    """Never returns."""
    building.BATCH_DOCUMENTS = BATCH_DOCUMENTS
    dropping._BATCH_ROWS = BATCH_ROWS
    arm_with(point, passes, victim, number)
    del sys.argv[1:5]
    run()


def arm_with(point: str, passes: int, victim: int, number: int) -> None:
    """Send a signal when a kill point is passed for the given time."""
    left = passes

    def strike(name: str) -> None:
        nonlocal left
        left -= name == point
        if name == point and left == 0:
            _send(victim, number)

    arm(strike)


def _send(victim: int, number: int) -> None:
    if victim == 0:
        os.kill(os.getpid(), number)
        return
    for pid in sorted(tree(victim), key=lambda pid: pid != victim):
        os.kill(pid, number)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
