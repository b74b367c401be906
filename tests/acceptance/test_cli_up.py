"""One process tree: what ``up`` starts ends with it, however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.child import is_alive
from tests.support.cli import Cli
from tests.support.processes import tree
from tests.support.waiting import eventually, within

ENVIRONMENT = {
    "HEADRACE_REDIS_URL": "",
    "HEADRACE_DATABASE_URL": "",
    "HEADRACE_SHUTDOWN_TIMEOUT": "5",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Cli:
    return Cli({**ENVIRONMENT, "HEADRACE_HOME": str(home)})


@pytest.fixture
async def up(cli: Cli, home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running ``up``; killed at the end where the test hasn't ended it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", "up"),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **cli.environment},
    )
    await eventually((home / "up.json").exists, "up is up", timeout=60)
    yield process
    if process.returncode is None:
        process.kill()
    await process.wait()


def nothing_runs(pids: set[int]) -> bool:
    return not any(map(is_alive, pids))


@pytest.mark.usefixtures("up")
async def test_users_of_its_redis_last_as_long_as_it_does(cli: Cli) -> None:
    """They can be tried; who makes them is told that the next ``up`` won't have them."""
    made = await cli("access", "--json")
    assert made.json["saved"] is False
    assert "run this again" in made.stderr
    [operator] = [one for one in made.json["roles"] if one["role"] == "operator"]
    urls = {f"HEADRACE_{name.upper()}": operator[name] for name in ("redis_url", "database_url")}
    assert (await cli("dead", "list", **urls)).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_one_signal_ends_all_in_order(
    up: asyncio.subprocess.Process, home: Path, number: signal.Signals
) -> None:
    """Ctrl-C, or a supervisor's SIGTERM: exit code 0, and nothing is left."""
    pids = tree(up.pid)
    assert len(pids) >= 4, "up itself, Redis, Postgres, a worker"
    up.send_signal(number)
    async with within(30):
        assert await up.wait() == 0
    assert nothing_runs(pids)
    assert not (home / "up.json").exists()


async def test_kill_9_leaves_nothing_running(up: asyncio.subprocess.Process, cli: Cli) -> None:
    """Even a killed ``up`` takes its servers and workers along, and the next command works."""
    pids = tree(up.pid)
    up.kill()
    await up.wait()
    await eventually(lambda: nothing_runs(pids), "the whole tree is gone", timeout=30)
    assert (await cli("status", "--json")).json["servers"].startswith("embedded")


async def test_other_commands_find_it(up: asyncio.subprocess.Process, cli: Cli) -> None:
    """Commands use the servers of a running ``up``; a second ``up`` is refused."""
    data = {"project": "notes", "uri": "one", "content": "Herons nest in March."}
    event = json.dumps({"type": "document.changed", "data": data})
    assert (await cli("publish", "--wait", stdin=event)).code == 0
    found = (await cli("ask", "--project", "notes", "herons", "--json")).json
    assert found["results"][0]["citation"]["uri"] == "one"
    assert (await cli("status", "--json")).json["servers"] == "of a running `headrace up`"
    assert "runs already" in (await cli("up")).line
    assert up.returncode is None


async def test_ask_starts_what_it_needs(cli: Cli) -> None:
    """Without a running ``up`` a command has servers and a worker for its own duration."""
    data = {"project": "notes", "uri": "one", "content": "Herons nest in March."}
    event = json.dumps({"type": "document.changed", "data": data})
    assert (await cli("publish", "--wait", stdin=event)).code == 0
    found = (await cli("ask", "--project", "notes", "herons", "--json")).json
    assert found["results"][0]["content"] == "Herons nest in March."
