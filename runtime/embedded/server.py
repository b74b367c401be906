"""What embedded servers have in common: one owner, one process, a beginning and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar

from runtime.child import ChildProcess
from runtime.embedded.lock import DirectoryLock
from runtime.errors import ConfigurationError

__all__ = ["EmbeddedServer"]

U = TypeVar("U")


class EmbeddedServer(ABC, Generic[U]):
    """A server with its files in ``directory``; ``U`` is how to reach it."""

    def __init__(
        self, name: str, directory: Path, *, start_timeout: timedelta, stop_timeout: timedelta
    ) -> None:
        self._name = name
        self._directory = directory
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._log = directory / f"{directory.name}.log"
        self._lock = DirectoryLock(directory)
        self._server: ChildProcess | None = None

    @property
    def pid(self) -> int:
        """Process id of the server.

        Raises:
            Unavailable: it isn't running.
            ConfigurationError: it was not started.
        """
        return self._started().pid

    async def start(self) -> U:
        """Start the server, the first time after laying out its data; wait until it answers.

        Must be called from a thread that lives as long as the server.

        Raises:
            UsageError: another process owns the directory.
            ConfigurationError: it can't start here; the message says why.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server in order: everything that was written or committed is on disk."""
        if self._server is not None:
            await self._server.stop(self._stop_timeout)
            self._server = None
        self._lock.release()

    @abstractmethod
    async def _start(self) -> U:
        """Set ``_server`` to the running server, and wait until it answers."""

    def _started(self) -> ChildProcess:
        if self._server is None:
            raise self._not_started()
        return self._server

    def _not_started(self) -> ConfigurationError:
        return ConfigurationError(f"{self._name} was not started")

    def _does_not_answer(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self._name} does not answer in {self._start_timeout}; see {self._log}"
        )
