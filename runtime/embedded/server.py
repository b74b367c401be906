"""What embedded servers have in common: one owner, one process, a beginning and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar

from runtime.child import ChildProcess
from runtime.embedded.lock import DirectoryLock
from runtime.errors import ConfigurationError
from runtime.private import make_private

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

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self._name

    @property
    def is_running(self) -> bool:
        """Whether its process was started and hasn't ended."""
        return self._server is not None and self._server.is_running

    def ending(self) -> str:
        """How its process ended, in one line."""
        return self._started().ending()

    def shorten_log(self) -> None:
        """Empty its log where that has grown too long; a copy stays."""
        self._started().shorten_log()

    async def start(self) -> U:
        """Start the server, the first time after laying out its data; wait until it answers.

        Must be called from a thread that lives as long as the server.

        Raises:
            UsageError: another process owns the directory.
            ConfigurationError: it can't start here; the message says why.
        """
        make_private(self._directory)
        self._lock.acquire()
        try:
            return await self._start()
        except OSError as error:
            await self.stop()
            raise ConfigurationError(f"{self._name} can't start: {error}") from error
        except BaseException:
            await self.stop()
            raise

    async def restart(self) -> None:
        """Start the server where its process has ended; it is reached as before.

        Raises:
            ConfigurationError: it can't start; the message says why. Another try is possible.
        """
        server = self._started()
        try:
            await self._restart()
        except BaseException:
            # what is left of this try must not be in the way of the next one
            await server.stop(self._stop_timeout)
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

    @abstractmethod
    async def _restart(self) -> None:
        """Start ``_server`` again as it was, and wait until it answers."""

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
