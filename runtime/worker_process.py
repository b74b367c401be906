"""A worker or a gateway in its own process, which never outlives this process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from runtime.child_process import ChildProcess, Fork
from runtime.errors import ConfigurationError

__all__ = ["ServiceProcess", "WorkerProcess", "worker_process"]

_READY_TIMEOUT = timedelta(seconds=120)
_UNREADY_STOP_TIMEOUT = timedelta(seconds=1)
_POLL_SECONDS = 0.02


class ServiceProcess:
    """``headrace ARGUMENTS``, which runs until it is ended, with ``environment`` added to our own.

    It logs to ``log``, or to our own output. It is killed if it does not end in ``stop_timeout``.
    With ``fork``, it shares the memory of its modules with other processes.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        stop_timeout: timedelta,
        log: Path | None = None,
        name: str,
        fork: Fork | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._stop_timeout = stop_timeout
        self._directory = tempfile.TemporaryDirectory(prefix="headrace-")
        self._ready = Path(self._directory.name) / "ready"
        # -P: the current directory may hold packages with the names of ours
        arguments = [*arguments, "--ready-file", str(self._ready)]
        environment = {**os.environ, **environment}
        self._child = ChildProcess(
            name,
            [sys.executable, "-P", "-m", "gateway.main", *arguments],
            log=log,
            environment=environment,
            fork=fork and (lambda output: fork(arguments, environment, output, signal.SIGTERM)),
        )

    @property
    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._child.is_running

    @property
    def child(self) -> ChildProcess:
        """The child process."""
        return self._child

    @property
    def announcement(self) -> str:
        """Text of the ready file; a gateway writes its address."""
        return self._ready.read_text()

    def ending(self) -> str:
        """Describe in one line how the process ended."""
        return self._child.ending()

    async def wait_for_end(self, longest: timedelta) -> None:
        """Wait until the process has ended, at most for a time."""
        await self._child.wait_for_end(longest)

    def shorten_log(self) -> None:
        """Empty the log if it has grown too long, and keep a copy."""
        self._child.shorten_log()

    async def start(self) -> None:
        """Start the process, for the first time or again, and wait until it is ready.

        If the start is cancelled, the process is ended at once: it has no work in flight yet.

        Raises:
            ConfigurationError: it is not ready in time, or has ended; the message quotes its log.
        """
        self._ready.unlink(missing_ok=True)
        self._child.start()
        try:
            await self._wait_until_ready()
        except BaseException:
            await self._child.stop(_UNREADY_STOP_TIMEOUT)
            raise

    async def restart(self) -> None:
        """Start the process again; see ``start``."""
        await self.start()

    async def stop(self) -> None:
        """End the process, and wait for its end."""
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
                f"{self.name} is not ready after {_READY_TIMEOUT}: {self._child.end_reason()}"
            ) from None


class WorkerProcess(ServiceProcess):
    """``headrace worker ARGUMENTS``; see ``ServiceProcess``."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        stop_timeout: timedelta,
        log: Path | None = None,
        name: str = "the worker",
        fork: Fork | None = None,
    ) -> None:
        super().__init__(
            ["worker", *arguments],
            environment=environment,
            stop_timeout=stop_timeout,
            log=log,
            name=name,
            fork=fork,
        )


@asynccontextmanager
async def worker_process(
    *arguments: str,
    environment: Mapping[str, str],
    stop_timeout: timedelta,
    log: Path | None = None,
) -> AsyncIterator[ChildProcess]:
    """Run a worker for the duration of the context.

    Raises:
        ConfigurationError: it is not ready in time, or has ended; the message quotes its log.
    """
    worker = WorkerProcess(*arguments, environment=environment, stop_timeout=stop_timeout, log=log)
    try:
        await worker.start()
        yield worker.child
    finally:
        await worker.stop()
