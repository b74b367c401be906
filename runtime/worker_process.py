"""A worker in a process of its own: ready when entered, ended when left, gone when we are."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from runtime.child import ChildProcess
from runtime.errors import ConfigurationError

__all__ = ["WorkerProcess", "worker_process"]

_READY_TIMEOUT = timedelta(seconds=120)
_UNREADY_STOP_TIMEOUT = timedelta(seconds=1)
_POLL_SECONDS = 0.02


class WorkerProcess:
    """``headrace worker ARGUMENTS`` with ``environment`` on top of ours.

    It logs to ``log``, or to where we do; it is killed when it doesn't end in ``stop_timeout``.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        stop_timeout: timedelta,
        log: Path | None = None,
        name: str = "the worker",
    ) -> None:
        self.name = name
        self.log = log
        self._stop_timeout = stop_timeout
        self._directory = tempfile.TemporaryDirectory(prefix="headrace-")
        self._ready = Path(self._directory.name) / "ready"
        # -P: the current directory may hold packages named like ours
        command = [sys.executable, "-P", "-m", "gateway.main", "worker", *arguments]
        self._child = ChildProcess(
            name,
            [*command, "--ready-file", str(self._ready)],
            log=log,
            environment={**os.environ, **environment},
        )

    @property
    def is_running(self) -> bool:
        """Whether its process was started and hasn't ended."""
        return self._child.is_running

    @property
    def child(self) -> ChildProcess:
        """Its process."""
        return self._child

    def ending(self) -> str:
        """How its process ended, in one line."""
        return self._child.ending()

    def shorten_log(self) -> None:
        """Empty its log where that has grown too long; a copy stays."""
        self._child.shorten_log()

    async def start(self) -> None:
        """Start its process, for the first time or after its end, and wait until it is ready.

        A start that is cancelled ends the process at once: it has no work in hand yet.

        Raises:
            ConfigurationError: it isn't ready in time, or ended; the message holds its last words.
        """
        self._ready.unlink(missing_ok=True)
        self._child.start()
        try:
            await self._wait_until_ready()
        except BaseException:
            await self._child.stop(_UNREADY_STOP_TIMEOUT)
            raise

    async def restart(self) -> None:
        """As ``start``."""
        await self.start()

    async def stop(self) -> None:
        """End its process, and wait for its end."""
        await self._child.stop(self._stop_timeout)
        self._directory.cleanup()

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(_READY_TIMEOUT.total_seconds()):
                while not self._ready.exists():
                    self._child.check()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ConfigurationError(
                f"{self.name} is not ready after {_READY_TIMEOUT}: {self._child.last_words()}"
            ) from None


@asynccontextmanager
async def worker_process(
    *arguments: str,
    environment: Mapping[str, str],
    stop_timeout: timedelta,
    log: Path | None = None,
) -> AsyncIterator[ChildProcess]:
    """A worker for as long as this lasts.

    Raises:
        ConfigurationError: it isn't ready in time, or ended; the message holds its last words.
    """
    worker = WorkerProcess(*arguments, environment=environment, stop_timeout=stop_timeout, log=log)
    try:
        await worker.start()
        yield worker.child
    finally:
        await worker.stop()
