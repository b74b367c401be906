"""Base class of embedded servers, and the lock that gives a directory one owner."""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path
from typing import IO, Generic, TypeVar

from runtime.child_process import ChildProcess
from runtime.errors import ConfigurationError, UsageError
from runtime.private import make_private, open_private

__all__ = ["DirectoryLock", "EmbeddedServer"]

U = TypeVar("U")


class EmbeddedServer(ABC, Generic[U]):
    """A server with its files in ``directory``; ``U`` is the type of its connection URLs."""

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
            Unavailable: the server is not running.
            ConfigurationError: the server was not started.
        """
        return self._started().pid

    @property
    def name(self) -> str:
        """Name of the server in messages."""
        return self._name

    @property
    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._server is not None and self._server.is_running

    def ending(self) -> str:
        """Describe in one line how the process ended."""
        return self._started().ending()

    async def wait_for_end(self, longest: timedelta) -> None:
        """Wait until the process has ended, at most for a time."""
        await self._started().wait_for_end(longest)

    def shorten_log(self) -> None:
        """Empty the log if it has grown too long, and keep a copy."""
        self._started().shorten_log()

    async def start(self) -> U:
        """Start the server and wait until it answers; the first start creates its data directory.

        Must be called from a thread that lives as long as the server.

        Raises:
            UsageError: another process owns the directory.
            ConfigurationError: the server can't start here; the message gives the reason.
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
        """Start the server again after its process has ended; its URL stays the same.

        Raises:
            ConfigurationError: it can't start; the message gives the reason. A retry is possible.
        """
        server = self._started()
        try:
            await self._restart()
        except BaseException:
            # a leftover process of this attempt would block the next one
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
            f"{self._name} does not answer in {self._start_timeout}", f"see {self._log}"
        )


class DirectoryLock:
    """Ownership of a directory; the kernel releases it when the owner dies for any reason."""

    def __init__(self, directory: Path, name: str = "owner.lock") -> None:
        self._directory = directory
        self._path = directory / name
        self._file: IO[str] | None = None

    def owner(self) -> int | None:
        """Return the process id of the owner, or None if the directory has no owner."""
        try:
            with self._path.open() as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(handle.read())
        except (OSError, ValueError):
            return None
        return None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            UsageError: another process holds it.
        """
        handle = open_private(self._path, "a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            owner = handle.read().strip() or "unknown"
            handle.close()
            raise UsageError(
                f"{self._directory} is in use by process {owner}",
                "wait for its end, run `headrace up` for commands to share, or set HEADRACE_HOME "
                "to another directory",
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        self._file = handle

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None
