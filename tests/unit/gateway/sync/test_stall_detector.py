"""Waiting for workers: it ends with a reason when there is no progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from events.client.operator_client import OperatorClient
from events.heartbeats import Heartbeat
from gateway.sync.stall_detector import StallDetector
from runtime.errors import ConfigurationError, Unavailable

ALIVE = timedelta(seconds=1)
NOW = timedelta(milliseconds=-1)
"""Below zero, because the clock of the event loop stands still within a turn."""


@dataclass
class Workers:
    """Workers as the client sees them."""

    beats: list[Heartbeat] = field(default_factory=list)
    cursor: int = 0
    refused: bool = False

    async def heartbeats(self) -> list[Heartbeat]:
        if self.refused:
            raise ConfigurationError("not allowed")
        return self.beats

    async def cursors(self) -> tuple[object, ...]:
        return (self.cursor,)


def beat(**state: Any) -> Heartbeat:
    return Heartbeat("w", ALIVE, {"host": "h", "pid": 7, "roles": ["indexer"], **state})


def detector(workers: Workers, alone: timedelta = NOW, still: timedelta = NOW) -> StallDetector:
    return StallDetector(cast("OperatorClient", workers), alone, still)


@pytest.mark.parametrize(
    ("workers", "reason"),
    [
        (Workers(), "no worker"),
        (Workers([Heartbeat("w", timedelta(minutes=1), beat().state)]), "no worker"),
        (Workers([beat(roles=["answerer"])]), "no worker"),
        (Workers([beat(in_work={"document.changed.bulk": 64})]), "worker h:7 has had 64 of"),
        (
            Workers([beat(circuits=[{"model": "m", "state": "open", "reason": "503"}])]),
            "model m is down",
        ),
        (Workers([beat()]), "workers run, but"),
        (Workers(refused=True), "headrace access"),
    ],
)
async def test_waiting_ends_with_the_reason(workers: Workers, reason: str) -> None:
    """The wait ends with its reason at the second check without progress."""
    waiting = detector(workers)
    await waiting.check(3, "indexer")
    with pytest.raises(Unavailable, match=reason) as caught:
        await waiting.check(3, "indexer")
    assert "3 changes wait" in str(caught.value)


async def test_whatever_moves_prolongs_the_wait() -> None:
    """New outcomes and newly embedded chunks prolong the wait; other metrics do not."""
    workers = Workers([beat()])
    waiting = detector(workers)
    await waiting.check(1, "indexer")
    workers.cursor += 1
    await waiting.check(1, "indexer")
    workers.beats = [beat(metrics={"headrace_chunks_embedded_total{model=m}": 5.0})]
    await waiting.check(1, "indexer")
    workers.beats = [
        beat(
            metrics={
                "headrace_chunks_embedded_total{model=m}": 5.0,
                "headrace_worker_memory_bytes{worker=h:7}": 9.0,
            }
        )
    ]
    with pytest.raises(Unavailable):
        await waiting.check(1, "indexer")


async def test_a_worker_that_lives_is_waited_for_longer() -> None:
    """A running worker is waited for longer, because a slow model can keep it busy."""
    waiting = detector(Workers([beat()]), still=timedelta(hours=1))
    for _ in range(3):
        await waiting.check(1, "indexer")
