"""Start and stop of ``headrace up`` in the background, and tails of its log files."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from gateway.output import stderr
from gateway.servers import announced_pid, owner_lock, prepare_home
from runtime.child_process import is_alive
from runtime.errors import ConfigurationError, UsageError
from runtime.private import open_private
from runtime.settings import Settings

__all__ = ["LogTail", "bring_down", "detach", "log_files"]

_POLL_SECONDS = 0.05
_SERVERS_STOP_TIMEOUT = timedelta(seconds=60)
_ERROR = "headrace: "

_MOST_BYTES = 2**20
_PATTERNS = {
    "up": "up.log",
    "worker": "worker*.log",
    "gateway": "gateway.log",
    "redis": "redis/redis.log",
    "postgres": "postgres/postgres.log",
    "hook": "hook.log",
}


async def detach(settings: Settings, options: Sequence[str], *, quiet: bool = False) -> None:
    """Start ``headrace up`` with ``options`` as a separate process, and wait until it is up.

    With ``quiet``, its lines are not printed: one of them contains a password.

    Raises:
        UsageError: another one runs in this home.
        ConfigurationError: the process ended; the message holds its reason.
    """
    home = prepare_home(settings)
    owner = owner_lock(home).owner()
    if owner is not None:
        raise UsageError(
            f"`headrace up` runs already in {home}, process {owner}", "stop it with `headrace down`"
        )
    log = home / "up.log"
    tail = LogTail(log, from_end=True)
    process = _spawn(log, options)
    try:
        while announced_pid(settings) != process.pid:
            if process.poll() is not None:
                raise ConfigurationError(_reason(tail, log))
            await asyncio.sleep(_POLL_SECONDS)
    except asyncio.CancelledError:
        process.terminate()
        raise
    if quiet:
        return
    for line in tail.new():
        if not line.startswith("headrace is up"):
            stderr().print(line, markup=False)
    stderr().print(f"headrace is up ({home}); `headrace down` stops it", markup=False)


async def bring_down(settings: Settings) -> bool:
    """Stop a running ``headrace up``, detached or not, and wait for its end.

    Returns False if none runs.

    Raises:
        ConfigurationError: the process doesn't end in time.
        UsageError: the process belongs to another user.
    """
    lock = owner_lock(settings.home_directory)
    owner = lock.owner()
    if owner is None:
        return False
    try:
        os.kill(owner, signal.SIGTERM)
    except PermissionError:
        raise UsageError(
            f"`headrace up` (process {owner}) belongs to another user", "ask that user to stop it"
        ) from None
    except ProcessLookupError:
        return True
    stderr().print(f"waiting for the processes of `headrace up` ({owner}) to end", markup=False)
    patience = settings.shutdown_timeout + _SERVERS_STOP_TIMEOUT
    try:
        async with asyncio.timeout(patience.total_seconds()):
            while lock.owner() == owner or is_alive(owner):  # noqa: ASYNC110  # another process
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise ConfigurationError(
            f"`headrace up` (process {owner}) did not end in {patience.total_seconds():.0f} s",
            f"see `headrace logs`, or kill it with kill -9 {owner}",
        ) from None
    return True


def _spawn(log: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    # -P: the current directory may contain packages of the same names
    command = [sys.executable, "-P", "-m", "gateway.main", "up", "--quiet"]
    with open_private(log, "ab") as output:
        return subprocess.Popen(  # noqa: S603  # the command is built by us
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that it outlives this terminal
        )


def _reason(tail: LogTail, log: Path) -> str:
    lines = tail.new()
    reasons = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return reasons[-1] if reasons else f"`headrace up` ended without a reason; see {log}"


def log_files(home: Path, part: str | None = None) -> dict[str, Path]:
    """Log files under ``home`` by name (``redis``, ``worker-1``), for one part or all."""
    patterns = [pattern for name, pattern in _PATTERNS.items() if part in {None, name}]
    return {path.stem: path for pattern in patterns for path in sorted(home.glob(pattern))}


class LogTail:
    """Reader of a growing file; if the file was truncated, it starts again from the beginning."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = self._size() if from_end else 0
        self._partial_line = b""

    def last(self, count: int) -> list[str]:
        """Return the last lines; later lines are returned by ``new``."""
        self._offset = max(0, self._size() - _MOST_BYTES)
        lines = self.new()
        return lines[-count:] if count else []

    def new(self) -> list[str]:
        """Return the complete lines appended since the last call."""
        size = self._size()
        if size < self._offset:
            self._offset, self._partial_line = 0, b""
        if size == self._offset:
            return []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            chunk = log.read(_MOST_BYTES)
        self._offset += len(chunk)
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
