"""Line of a hook, and the queue of syncs in the background."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gateway.sync import hook
from gateway.sync.hook import LOG, hook_line, queued, sync_behind_git
from gateway.sync.registration import Destination
from gateway.sync.request import SyncRequest
from runtime.errors import Unavailable, UsageError
from runtime.settings import Settings
from sources import open_source
from tests.support.waiting import eventually


def test_one_runs_one_waits_and_the_others_leave_their_work_to_it(tmp_path: Path) -> None:
    """The one that waits begins after the one that runs, and others may wait from then on."""
    path = tmp_path / "sync.lock"
    order: list[str] = []

    def run(name: str, began: Event, end: Event) -> bool:
        with queued(path) as is_next:
            if is_next:
                order.append(name)
                began.set()
                end.wait()
                order.append(f"{name} ended")
            return is_next

    events = [Event() for _ in range(4)]
    first_began, first_end, second_began, second_end = events
    with ThreadPoolExecutor() as threads:
        first = threads.submit(run, "first", first_began, first_end)
        first_began.wait()
        others = [threads.submit(run, "second", second_began, second_end) for _ in range(3)]
        while sum(other.done() for other in others) < 2:
            assert order == ["first"]
        first_end.set()
        second_began.wait()
        third_began, third_end = Event(), Event()
        third = threads.submit(run, "third", third_began, third_end)
        second_end.set()
        third_began.wait()
        third_end.set()
        assert first.result()
        assert third.result()
        assert sorted(other.result() for other in others) == [False, False, True]
    assert order == ["first", "first ended", "second", "second ended", "third", "third ended"]


def test_the_log_names_a_later_sync_only_where_it_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong option fails in every sync, a server that is away does not."""
    request = SyncRequest(lambda _: open_source("/code"), Destination("docs"))
    ends = {
        UsageError("a.md belongs to another source", "use --prefix"): "use --prefix",
        Unavailable("no servers run", "start them"): "a later sync publishes the commits",
    }
    for error, end in ends.items():
        monkeypatch.setattr(hook, "run_client", Mock(side_effect=error))
        [line] = sync_behind_git(Settings(home=tmp_path), request, "/code")
        assert line.endswith(f"; {end}"), line


def run(line: str, arguments: list[str]) -> None:
    """Run the line as a hook of a careful shell."""
    subprocess.run(["sh", "-e", "-u", "-c", line, "hook", *arguments], check=True)


async def test_a_hook_starts_its_command_unless_head_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs in the background with its arguments; a checkout of files starts none."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nprintf "%s|" "$HEADRACE_HOME" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(hook, "sys", SimpleNamespace(executable=str(program)))
    home = tmp_path / "it's home"
    home.mkdir()
    destination = Destination("docs", ("a b",), None, None, "x/")
    line = hook_line(Settings(home=home), "/the code", destination, ["*.log"])
    for arguments in (["1", "1", "1"], ["1", "2", "0"], ["1", "2", "1"]):
        run(line, arguments)
    log = home / LOG
    await eventually(lambda: log.exists() and log.read_text(), "the command has run")
    parts = [str(home), "-P", "-m", "gateway.main", "hook", "run", "/the code", "--project=docs"]
    expected = [*parts, "--collection=a b", "--prefix=x/", "--include=*.log"]
    assert log.read_text() == "".join(f"{part}|" for part in expected)
