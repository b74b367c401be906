"""Named places where a test may end the process, to see that its successor finishes the work.

Nothing happens there unless something is armed, which only a test's own launcher does: neither a
setting nor the environment can.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["KILL_POINTS", "REPLAY_POINTS", "WORKER_POINTS", "arm", "disarm", "kill_point"]

WORKER_POINTS = (
    "indexing.taken",
    "indexing.prepared",
    "indexing.committed",
    "indexing.told",
    "indexing.requested",
    "embedding.taken",
    "embedding.embedded",
    "embedding.committed",
    "embedding.reported",
    "answering.found",
    "answering.replied",
)
"""A batch is begun, cut, committed, its outcomes published, its vectors requested; texts are taken,
embedded, written, reported; a reply is made, sent."""

REPLAY_POINTS = (
    "replay.building",
    "replay.catching_up",
    "replay.verifying",
    "replay.verified",
    "replay.switching",
    "replay.dropping",
)

KILL_POINTS = (*WORKER_POINTS, *REPLAY_POINTS)

_armed: list[Callable[[str], None]] = []


def arm(strike: Callable[[str], None]) -> None:
    """Have ``strike`` called with the name of every place that is passed from now on."""
    _armed.append(strike)


def disarm(strike: Callable[[str], None]) -> None:
    """Undo ``arm``."""
    _armed.remove(strike)


def kill_point(name: str) -> None:
    """Pass a place of ``KILL_POINTS``."""
    for strike in _armed:
        strike(name)
