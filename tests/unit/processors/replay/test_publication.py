"""Publication of a replay's state, and stops on request."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from fakeredis import FakeAsyncRedis

from events.names import Names
from events.replays import ReplayState, ReplayStates
from processors.replay import publication
from processors.replay.publication import ReplayPublication


async def test_a_stop_that_comes_too_late_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that began to switch while the request was read completes the switch."""
    is_stoppable = True
    asked = asyncio.Event()

    async def is_stop_requested(_states: ReplayStates, _id: str) -> bool:
        nonlocal is_stoppable
        is_stoppable = False
        asked.set()
        return True

    async def work() -> str:
        await asked.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return "switched"

    monkeypatch.setattr(publication, "_EVERY", timedelta(milliseconds=1))
    monkeypatch.setattr(ReplayStates, "is_stop_requested", is_stop_requested)
    state = ReplayState(project="docs")
    published = ReplayPublication(FakeAsyncRedis(), Names(), state, lambda *_: None)
    published.follow(dict, lambda: is_stoppable)
    assert await published.run(work(), lambda result: {"result": result}) == "switched"
