"""Replays of several processes: the same index, also if one of them ends."""

from __future__ import annotations

from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from processors.replay import shares
from processors.replay.replay import Replay
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.wiring.operator_tools import OperatorTools
from tests.support.databases import Database
from tests.support.replays import HASHING, notes, replay, tools
from tests.support.running import headrace


@pytest.fixture
async def opened(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OperatorTools]:
    """Tools of replays of the notes in the project ``docs``, of which few are a share."""
    monkeypatch.setattr(shares, "SMALLEST_SHARE", 3)
    async with headrace(redis_url, database, model=HASHING) as running:
        await notes(running)
        async with tools(running.redis_url, database) as opened:
            yield opened


@pytest.fixture
def built_elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of documents that other processes report, with each batch."""
    counts: list[int] = []
    take = shares._Share._take

    def recorded(self: shares._Share, message: dict[str, Any], *options: Any) -> None:
        counts.append(message.get("done", 0))
        take(self, message, *options)

    monkeypatch.setattr(shares._Share, "_take", recorded)
    return counts


async def _shared(opened: OperatorTools) -> ReplayReport:
    return await Replay(opened, "docs", Choice(), None, lambda *_: None, processes=2).run()


async def test_two_processes_build_the_same_index(
    opened: OperatorTools, built_elsewhere: list[int]
) -> None:
    """A process that builds a share leads to the same rows as one process alone."""
    alone = await replay(opened)
    shared = await _shared(opened)
    assert (shared.digest, shared.documents) == (alone.digest, alone.documents)
    assert 3 <= max(built_elsewhere) < shared.documents


async def test_the_replay_builds_what_an_ended_process_has_not(
    opened: OperatorTools, built_elsewhere: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of a process that is killed is built by the replay itself."""
    start = shares._started
    killed: list[Process] = []

    async def started(environment: Mapping[str, str]) -> Process:
        process = await start(environment)
        process.kill()
        killed.append(process)
        return process

    monkeypatch.setattr(shares, "_started", started)
    alone = await replay(opened)
    shared = await _shared(opened)
    assert [process.returncode for process in killed] == [-9]
    assert shared.digest == alone.digest
    assert not built_elsewhere


async def test_an_error_of_a_process_is_left_to_the_replay(
    opened: OperatorTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that can't reach a server reports that, and the replay goes on by itself."""
    wrong = opened.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(shares.log, "warning", lambda event, **facts: told.append(facts))
    alone = await replay(opened)
    object.__setattr__(opened, "settings", wrong)
    shared = await _shared(opened)
    assert shared.digest == alone.digest
    assert "Redis" in told[0]["error"]
