"""Supervisor: restarts of parts that ended, and its limit of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from gateway.processes.supervisor import Restarts, Supervisor
from runtime.errors import ConfigurationError
from runtime.intervals import Backoff
from tests.support.waiting import eventually

AT_ONCE = Restarts(Backoff(timedelta(), timedelta()), most=3)


class Machine:
    """Part that runs until a test ends it; ``failures`` are the errors of its next starts."""

    def __init__(self, name: str, failures: Sequence[str] = ()) -> None:
        self.name = name
        self.is_running = True
        self.starts = 0
        self.failures = [*failures]

    def ending(self) -> str:
        return f"{self.name} was ended by SIGKILL"

    async def wait_for_end(self, longest: timedelta) -> None:
        del longest
        await eventually(lambda: not self.is_running, f"{self.name} has ended")

    def shorten_log(self) -> None:
        """Do nothing: there is no log."""

    async def restart(self) -> None:
        self.starts += 1
        if self.failures:
            raise ConfigurationError(self.failures.pop(0))
        self.is_running = True


async def test_what_ends_comes_back() -> None:
    """Each end and each restart is reported in one line."""
    server, worker, lines = Machine("Redis", ["no room"]), Machine("the worker"), list[str]()
    stop = asyncio.Event()
    run = asyncio.create_task(Supervisor([server], [worker], lines.append, AT_ONCE).run(stop))
    await asyncio.sleep(0)
    server.is_running = False
    await eventually(lambda: server.is_running, "the server is back")
    stop.set()
    await run
    assert lines == [
        "Redis was ended by SIGKILL; next start in 0 s",
        "no room; next start in 0 s",
        "Redis runs again",
    ]
    assert worker.starts == 0


async def test_it_gives_up_with_the_last_reason() -> None:
    """The supervisor gives up after three failed restarts, with the last reason."""
    server = Machine("Postgres", ["no room"] * 10)
    run = Supervisor([server], [], lambda _: None, AT_ONCE).run(asyncio.Event())
    server.is_running = False
    with pytest.raises(ConfigurationError, match=r"Postgres failed 4 times .* no room"):
        await run
    assert server.starts == 3


async def test_a_worker_waits_for_its_servers() -> None:
    """A worker is restarted only after its servers run."""
    server, worker = Machine("Postgres"), Machine("the worker")
    back = asyncio.Event()

    async def restart() -> None:
        await back.wait()
        server.is_running = True

    server.restart = restart  # type: ignore[method-assign]
    stop = asyncio.Event()
    lines: list[str] = []
    run = asyncio.create_task(Supervisor([server], [worker], lines.append, AT_ONCE).run(stop))
    server.is_running = worker.is_running = False
    await eventually(lambda: len(lines) == 2, "both ends are known")
    assert worker.starts == 0
    back.set()
    await eventually(lambda: worker.is_running, "the worker is back")
    stop.set()
    await run
