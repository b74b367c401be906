"""Process tree of ``up``: everything that it starts ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.child_process import command_of, is_alive
from tests.support.cli import Cli, Command
from tests.support.databases import copy_data
from tests.support.forking import ROOT
from tests.support.processes import tree
from tests.support.waiting import eventually, within

ENVIRONMENT = {
    "HEADRACE_REDIS_URL": "",
    "HEADRACE_DATABASE_URL": "",
    "HEADRACE_SHUTDOWN_TIMEOUT": "5",
    "HEADRACE_MODEL": HASHING_MODEL,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Cli:
    return Cli({**ENVIRONMENT, "HEADRACE_HOME": str(home)})


@pytest.fixture
async def starting(
    cli: Cli, home: Path, tmp_path: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A starting ``up`` whose database exists, killed at the end if it still runs."""
    await copy_data(home)
    with (tmp_path / "stderr").open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.main", "up"),
            env={**os.environ, "PYTHONPATH": str(ROOT), **cli.environment},
            stderr=said,
        )
    yield process
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def up(cli: Cli, home: Path) -> AsyncIterator[Command]:
    """A running ``up`` that is forked, as are its worker and its gateway."""
    up = await Command.start("up", environment=cli.environment)
    await eventually((home / "up.json").exists, "up is up", timeout=60)
    yield up
    if up.is_running:
        up.send(signal.SIGKILL)
        await up.result(30)


def process_of(pids: set[int], words: str) -> int:
    """The only one of these processes whose command line contains the words."""
    [found] = [pid for pid in pids if words in command_of(pid)]
    return found


def nothing_runs(pids: set[int]) -> bool:
    return not any(map(is_alive, pids))


async def find_it(cli: Cli) -> None:
    """Commands use the servers of a running ``up``; a second ``up`` is refused."""
    data = {"project": "notes", "uri": "one", "content": "Herons nest in March."}
    event = json.dumps({"type": "document.changed", "data": data})
    assert (await cli("publish", "--wait", stdin=event)).code == 0
    found = (await cli("ask", "--project", "notes", "herons", "--json")).json
    assert found["results"][0]["citation"]["uri"] == "one"
    assert (await cli("status", "--json")).json["servers"] == "of a running `headrace up`"
    assert "runs already" in (await cli("up")).line
    await refuse_another_database(cli)


async def refuse_another_database(cli: Cli) -> None:
    """A database without its Redis is refused, and not replaced by that of ``up``."""
    for name in ("HEADRACE_DATABASE_URL", "HEADRACE_OWNER_DATABASE_URL"):
        refused = await cli("status", **{name: "postgresql://nobody@127.0.0.1:1/none"})
        assert f"HEADRACE_REDIS_URL is not set, but {name} is" in refused.line


async def use_users_of_its_redis(cli: Cli) -> None:
    """Users made in an embedded Redis work; the command warns that the next ``up`` loses them."""
    made = await cli("access", "--json")
    assert made.json["saved"] is False
    assert "run this again" in made.stderr
    [operator] = [role for role in made.json["roles"] if role["role"] == "operator"]
    urls = {f"HEADRACE_{name.upper()}": operator[name] for name in ("redis_url", "database_url")}
    assert (await cli("dead", "list", **urls)).code == 0


async def end_all_in_order(up: Command, home: Path) -> None:
    """SIGTERM ends all processes with exit code 0; the tests of ``purge`` use Ctrl-C."""
    pids = tree(up.pid)
    assert len(pids) >= 4, "up itself, Redis, Postgres, a worker"
    up.send(signal.SIGTERM)
    assert (await up.result(30)).code == 0
    assert nothing_runs(pids)
    assert not (home / "up.json").exists()


async def test_kill_9_leaves_nothing_running(up: Command, cli: Cli) -> None:
    """A killed ``up`` takes its servers and workers along, and the next command works."""
    pids = tree(up.pid)
    up.send(signal.SIGKILL)
    assert (await up.result(30)).code == -signal.SIGKILL
    await eventually(lambda: nothing_runs(pids), "the whole tree is gone", timeout=30)
    assert (await cli("status", "--json")).json["servers"].startswith("embedded")


async def test_ask_starts_what_it_needs(cli: Cli) -> None:
    """Without a running ``up`` a command starts its own servers and worker, not only Redis."""
    await refuse_another_database(cli)
    data = {"project": "notes", "uri": "one", "content": "Herons nest in March."}
    event = json.dumps({"type": "document.changed", "data": data})
    assert (await cli("publish", "--wait", stdin=event)).code == 0
    found = (await cli("ask", "--project", "notes", "herons", "--json")).json
    assert found["results"][0]["content"] == "Herons nest in March."


REDIS, POSTGRES, WORKER = "redis-server", "postgres -D", "headrace worker"


async def test_what_is_killed_comes_back_and_one_signal_ends_all(
    up: Command, cli: Cli, home: Path
) -> None:
    """``up`` restarts a killed Redis, Postgres or worker, and prints a line for each.

    Commands find it before and after.
    """
    await find_it(cli)
    await use_users_of_its_redis(cli)
    announced = (home / "up.json").read_text()
    for number, (words, name) in enumerate(
        {
            REDIS: "the embedded Redis",
            POSTGRES: "the embedded Postgres",
            WORKER: "the worker",
        }.items()
    ):
        pid = process_of(tree(up.pid), words)
        os.kill(pid, signal.SIGKILL)

        def said(line: str) -> bool:
            return line in up.printed().splitlines()

        await eventually(lambda: said(f"{name} runs again"), f"{name} is back", timeout=60)  # noqa: B023
        assert said(f"{name} was ended by SIGKILL; next start in 0.5 s")
        data = {"project": "notes", "uri": str(number), "content": "Herons nest in March."}
        event = json.dumps({"type": "document.changed", "data": data})
        assert (await cli("publish", "--wait", stdin=event)).code == 0
    assert (home / "up.json").read_text() == announced, "URL and password are the same"
    assert up.is_running
    await end_all_in_order(up, home)


async def test_ctrl_c_is_heeded_while_it_starts(
    starting: asyncio.subprocess.Process, home: Path
) -> None:
    """Ctrl-C ends ``up`` even if its worker never becomes ready."""

    def worker() -> list[int]:
        return [pid for pid in tree(starting.pid) if WORKER in command_of(pid)]

    [pid] = await eventually(worker, "a worker is started", timeout=60, every=0.01)
    os.kill(pid, signal.SIGSTOP)
    starting.send_signal(signal.SIGSTOP)
    pids = tree(starting.pid)
    is_up = (home / "up.json").exists()  # the worker was ready before it was stopped
    starting.send_signal(signal.SIGINT)
    starting.send_signal(signal.SIGCONT)
    async with within(30):
        assert await starting.wait() == (0 if is_up else 130)
    assert nothing_runs(pids)
    assert not (home / "up.json").exists()


async def test_it_runs_in_the_background(cli: Cli, home: Path) -> None:
    """``up --detach`` returns when it is up; ``logs`` and ``down`` find it."""
    result = await cli.typed("up", "--detach")
    assert result.code == 0, result.stderr
    try:
        assert "`headrace down` stops it" in result.stderr
        assert "runs already" in (await cli("up", "--detach")).line
        assert "worker-1 | worker ready" in (await cli("logs")).stdout
        assert "Ready to accept connections" in (await cli("logs", "redis", "-n", "3")).stdout
    finally:
        ended = await cli("down")
    waiting, last = ended.stderr.splitlines()
    assert waiting.startswith("waiting for the processes of `headrace up`")
    assert last == "headrace is down"
    assert not (home / "up.json").exists()
    assert "does not run" in (await cli("down")).stderr


@pytest.fixture
def log(home: Path) -> Path:
    """Log of a worker that an earlier ``up`` ran."""
    home.mkdir()
    path = home / "worker-1.log"
    path.write_text("first\nlast\n")
    return path


async def test_logs_are_followed(cli: Cli, log: Path) -> None:
    """``logs -f`` prints each line when it is written, with secrets masked, until Ctrl-C."""
    following = await Command.start("logs", "-f", "-n", "1", environment=cli.environment)

    async def prints(text: str) -> None:
        await eventually(lambda: following.printed() == text, f"it has printed {text!r}")

    await prints("last\n")
    with log.open("a") as file:
        file.write("connected to redis://user:hunter2@host\nhalf of ")
    await prints("last\nconnected to redis://user:***@host\n")
    with log.open("w") as file:
        file.write("emptied\n")
    await prints("last\nconnected to redis://user:***@host\nemptied\n")
    following.send(signal.SIGINT)
    assert (await following.result(30)).code == 0
