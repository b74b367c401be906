"""Lock that gives a directory one owner at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from runtime.errors import UsageError
from runtime.private import open_private

__all__ = ["DirectoryLock"]


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
                f"{self._directory} is in use by process {owner}: wait for its end, run "
                "`headrace up` for commands to share, or set HEADRACE_HOME to another directory"
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
