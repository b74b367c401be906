"""Supervision of servers and workers: restart those that end, and report it in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from runtime.errors import ConfigurationError, HeadraceError
from runtime.intervals import Backoff

__all__ = ["Part", "Restarts", "Supervisor"]

_BACKOFF = Backoff(timedelta(seconds=0.5), timedelta(seconds=15), jitter=0)
_LOG_CHECK_EVERY = timedelta(minutes=1)


class Part(Protocol):
    """A server or a worker."""

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def is_running(self) -> bool:
        """True if its process was started and has not ended."""

    def ending(self) -> str:
        """Describe in one line why its process ended."""

    async def wait_for_end(self, longest: timedelta) -> None:
        """Wait until its process has ended, at most for a time."""

    def shorten_log(self) -> None:
        """Empty its log if it has grown too long."""

    async def restart(self) -> None:
        """Start it again and wait until it is ready; raises HeadraceError if that fails."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """Delays between restarts of a part, and their limit.

    After ``most`` failures without ``steady`` time between them, there is no further attempt.
    """

    backoff: Backoff = _BACKOFF
    most: int = 8
    steady: timedelta = timedelta(minutes=1)


class Supervisor:
    """Restarts ``servers``, and ``workers``, which need all servers.

    ``say`` is called with a line whenever a part ends or runs again.
    """

    def __init__(
        self,
        servers: Sequence[Part],
        workers: Sequence[Part],
        say: Callable[[str], None],
        restarts: Restarts | None = None,
    ) -> None:
        self._servers = {server.name: asyncio.Event() for server in servers}
        for ready in self._servers.values():
            ready.set()
        self._parts = [*servers, *workers]
        self._say = say
        self._restarts = restarts or Restarts()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the parts running until ``stop`` is set.

        Raises:
            ConfigurationError: a part failed too often; the message holds the last reason.
        """
        watches = [asyncio.create_task(self._supervise(part)) for part in self._parts]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({*watches, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*watches, stopped):
                task.cancel()
            await asyncio.gather(*watches, stopped, return_exceptions=True)

    async def _supervise(self, part: Part) -> None:
        now = asyncio.get_running_loop().time
        failures = 0
        while True:
            began = now()
            await _wait_for_end(part)
            if now() - began >= self._restarts.steady.total_seconds():
                failures = 0
            ready = self._servers.get(part.name)
            if ready is not None:
                ready.clear()
            failures = await self._restart_until_running(part, failures)
            if ready is not None:
                ready.set()

    async def _restart_until_running(self, part: Part, failures: int) -> int:
        """Restart a part until it runs; returns the number of its consecutive failures."""
        reason = part.ending()
        while True:
            if failures >= self._restarts.most:
                raise ConfigurationError(
                    f"{part.name} failed {failures + 1} times in a row; last reason: {reason}"
                )
            wait = self._restarts.backoff.delay(failures).total_seconds()
            failures += 1
            self._say(f"{reason}; next start in {wait:g} s")
            await asyncio.sleep(wait)
            if part.name not in self._servers:
                await self._servers_are_ready()
            try:
                await part.restart()
            except HeadraceError as error:
                reason = str(error)
                if part.name not in self._servers and not self._all_ready():
                    failures -= 1  # it failed because a server was not ready
            else:
                self._say(f"{part.name} runs again")
                return failures

    async def _servers_are_ready(self) -> None:
        for ready in self._servers.values():
            await ready.wait()

    def _all_ready(self) -> bool:
        return all(ready.is_set() for ready in self._servers.values())


async def _wait_for_end(part: Part) -> None:
    while part.is_running:
        await part.wait_for_end(_LOG_CHECK_EVERY)
        part.shorten_log()
