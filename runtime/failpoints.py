"""Failpoints: named places where a test may end the process, to check that its successor recovers.

They do nothing unless one is armed. Only a test's own launcher does that: neither a setting nor the
environment can.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "CONTEXT_POINTS",
    "FAILPOINTS",
    "REPLAY_POINTS",
    "SYNC_POINTS",
    "WORKER_POINTS",
    "arm",
    "disarm",
    "failpoint",
]

WORKER_POINTS = (
    "indexing.taken",
    "indexing.prepared",
    "indexing.committed",
    "indexing.reported",
    "indexing.requested",
    "embedding.taken",
    "embedding.embedded",
    "embedding.committed",
    "embedding.reported",
    "answering.found",
    "answering.replied",
)
"""In order: a batch is begun, cut and committed, its outcomes are published, its vectors requested;
texts are taken, embedded, written and reported; a reply is made and sent."""

REPLAY_POINTS = (
    "replay.building",
    "replay.catching_up",
    "replay.verifying",
    "replay.verified",
    "replay.switching",
    "replay.dropping",
)

CONTEXT_POINTS = ("contexts.cached", "contexts.embedded", "contexts.applied")
"""In order: an answer is cached, the texts with their contexts are embedded and then written."""

SYNC_POINTS = ("sync.recorded", "sync.published", "sync.finished")
"""In order: the changes are saved as doubtful, a batch of them is published, the state is saved."""

FAILPOINTS = (*WORKER_POINTS, *REPLAY_POINTS, *CONTEXT_POINTS, *SYNC_POINTS)

_armed: list[Callable[[str], None]] = []


def arm(strike: Callable[[str], None]) -> None:
    """Call ``strike`` from now on with the name of every failpoint that is passed."""
    _armed.append(strike)


def disarm(strike: Callable[[str], None]) -> None:
    """Undo ``arm``."""
    _armed.remove(strike)


def failpoint(name: str) -> None:
    """Pass the failpoint ``name``, one of ``FAILPOINTS``."""
    for strike in _armed:
        strike(name)
