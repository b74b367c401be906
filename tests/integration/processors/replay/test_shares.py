"""Replays of several processes: the same index, also if one of them ends."""

from __future__ import annotations

from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from signal import SIGSTOP
from typing import Any

import pytest

from processors.replay import shares
from processors.replay.builder import Builder, Progress
from processors.replay.fold import Fold, Rows
from processors.replay.replay import Replay
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import Unavailable
from store.postgres.locks import HeldLock
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
def messages(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What other processes report."""
    received: list[dict[str, Any]] = []
    take = shares._Share._take

    def recorded(self: shares._Share, message: dict[str, Any], *options: Any) -> None:
        received.append(message)
        take(self, message, *options)

    monkeypatch.setattr(shares._Share, "_take", recorded)
    return received


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the log says of shares that fail."""
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr(shares.log, "error", lambda _event, **facts: logged.append(facts))
    return logged


@pytest.fixture
def built_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of documents that each build in the test's own process is given."""
    counts: list[int] = []
    build = Builder.build

    async def recorded(self: Builder, fold: Fold, rows: Rows, progress: Progress) -> None:
        counts.append(len(rows))
        await build(self, fold, rows, progress)

    monkeypatch.setattr(Builder, "build", recorded)
    return counts


def _start(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Process], None], **variables: str
) -> None:
    """Do something with each process when it has been started, with some variables."""
    start = shares._started

    async def started(environment: Mapping[str, str]) -> Process:
        process = await start({**environment, **variables})
        change(process)
        return process

    monkeypatch.setattr(shares, "_started", started)


async def _shared(opened: OperatorTools) -> ReplayReport:
    return await Replay(opened, "docs", Choice(), None, lambda *_: None, processes=2).run()


async def test_two_processes_build_the_same_index(
    opened: OperatorTools,
    messages: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    built_here: list[int],
) -> None:
    """A process that builds a share leads to the same rows as one process alone."""
    alone = await replay(opened)
    built_here.clear()
    shared = await _shared(opened)
    assert (shared.digest, shared.documents) == (alone.digest, alone.documents)
    assert not failures
    elsewhere = messages[0]["done"]
    assert elsewhere >= 3
    assert messages[-1] == {"complete": True}
    own, rest, *_ = built_here
    deleted = 2  # a document, and the former uri of another
    assert (own + elsewhere, rest) == (alone.documents, deleted)


async def test_the_replay_builds_what_an_ended_process_has_not(
    opened: OperatorTools,
    messages: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The share of a process that is killed is built by the replay itself."""
    _start(monkeypatch, Process.kill)
    alone = await replay(opened)
    shared = await _shared(opened)
    assert shared.digest == alone.digest
    assert [failure["exit_code"] for failure in failures] == [-9]
    assert not messages


async def test_an_error_of_a_process_is_left_to_the_replay(
    opened: OperatorTools, failures: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that can't reach a server reports that, and the replay goes on by itself."""
    _start(monkeypatch, lambda _: None, HEADRACE_REDIS_URL="redis://127.0.0.1:1/0")
    alone = await replay(opened)
    shared = await _shared(opened)
    assert shared.digest == alone.digest
    [failure] = failures
    assert "Redis" in failure["reason"]
    assert failure["exit_code"] == 1


async def test_a_process_that_hangs_is_ended(
    opened: OperatorTools, failures: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that builds no batch for too long is killed, and its share is built here."""
    monkeypatch.setattr(shares, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(shares, "_LONGEST_SILENCE_SECONDS", 0.1)
    _start(monkeypatch, lambda process: process.send_signal(SIGSTOP))
    alone = await replay(opened)
    shared = await _shared(opened)
    assert shared.digest == alone.digest
    [failure] = failures
    assert (failure["reason"], failure["exit_code"]) == ("no batch was built in 0.1 s", -9)


async def test_a_lost_lock_ends_the_processes(
    opened: OperatorTools, messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written any more once another replay may have begun."""
    processes: list[Process] = []
    _start(monkeypatch, processes.append)

    def check(self: HeldLock) -> None:
        if messages:
            raise Unavailable("the lock is lost")

    monkeypatch.setattr(HeldLock, "check", check)
    with pytest.raises(Unavailable, match="the lock is lost"):
        await _shared(opened)
    assert [process.returncode is None for process in processes] == [False]
    assert len(messages) == 1
