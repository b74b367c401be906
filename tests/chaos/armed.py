"""Failpoints that send a signal.

Batches are small, so that a small corpus passes them often.
"""

from __future__ import annotations

import os

from processors.replay import builder
from runtime.failpoints import arm
from store.generations import drop
from tests.support.processes import tree

__all__ = ["arm_with"]

BATCH_DOCUMENTS = 16
BATCH_ROWS = 100


def arm_with(point: str, passes: int, victim: int, number: int) -> None:
    """Send a signal at the given pass (from 1) of a failpoint.

    The signal goes to this process (``victim`` 0), or to the Postgres server with this process id
    and all its backends.
    """
    builder.BATCH_DOCUMENTS = BATCH_DOCUMENTS
    drop._BATCH_ROWS = BATCH_ROWS
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
