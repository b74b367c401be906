"""Child processes (servers and workers) that end when this process ends."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Protocol

from runtime.errors import ConfigurationError, Unavailable
from runtime.private import open_private

__all__ = [
    "PRIVATE_MASK",
    "ChildProcess",
    "Fork",
    "Process",
    "User",
    "command_of",
    "end_orphan",
    "is_alive",
]

_LAUNCHER = Path(__file__).with_name("launch.py")
_PROC = Path("/proc")
_LOG_LIMIT_BYTES = 10 * 2**20
_POLL_SECONDS = 0.02
_END_POLL_SECONDS = 0.5
PRIVATE_MASK = 0o077
"""Umask of child processes."""
_LAST_BYTES = 64 * 2**10
_REASON = re.compile(r"\b(?:FATAL|PANIC|ERROR|Fatal error|[Ee]rror)\b|No space left|^headrace: ")
"""Marks of a line with the reason for an end, in the output of Postgres, Redis and Headrace."""
_CONNECTION_ERRORS = re.compile(
    r"not yet accepting|is starting up|is shutting down|terminating connection|too many clients"
)
"""Errors that Postgres calls fatal although they end only a single connection."""


@dataclass(frozen=True)
class User:
    """System user that a child runs as.

    With ``reach``, the user keeps the right to enter directories that are closed to it.
    """

    uid: int
    gid: int
    reach: bool


class Process(Protocol):
    """Methods of ``subprocess.Popen`` that its starter needs."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the fatal signal; None while it runs."""

    def wait(self) -> int:
        """Wait for the end; return what ``poll`` does."""

    def descriptor_of_end(self) -> int | None:
        """Return a new file descriptor that can be read once the process has ended.

        The caller closes it. Returns None on a system without one.
        """

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""

    def kill(self) -> None:
        """End the process at once."""


Fork = Callable[[Sequence[str], Mapping[str, str], int, signal.Signals], Process | None]
"""Starts a command of Headrace without loading its modules again.

The arguments are those of the command, its environment, the file descriptor that it writes to, and
the signal that ends it with this process. Returns None if that is impossible.
"""


class _Started(subprocess.Popen[bytes]):
    def descriptor_of_end(self) -> int | None:
        if sys.platform != "linux" or self.poll() is not None:
            return None
        try:
            return os.pidfd_open(self.pid)
        except OSError:  # the kernel is too old
            return None


class ChildProcess:
    """A child process that ends at the latest when this process ends.

    Start it from a thread that lives as long as the child: Linux reports the death of the
    thread that forked, not of the process. It is no asyncio subprocess, because that belongs to one
    event loop, and a child may outlive that loop.

    ``fork`` is tried first, if it is given. It returns None if ``command`` has to be started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        user: User | None = None,
        environment: Mapping[str, str] | None = None,
        fork: Callable[[int], Process | None] | None = None,
    ) -> None:
        self._name = name
        self._command = command
        self._log = log
        self._stop_signal = stop_signal
        self._user = user
        self._environment = environment
        self._fork = fork
        self._child: Process | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Process id while the child runs.

        Raises:
            Unavailable: the child is not running.
        """
        if self._child is None or self._child.poll() is not None:
            raise Unavailable(f"{self._name} is not running; {self.end_reason()}")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Return whether the child was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the child; its output goes to the log file or, without one, to our own output."""
        if self._log is None:
            self._spawn(None)
            return
        self.shorten_log()
        with open_private(self._log, "ab") as output:
            self._log_start = output.tell()
            self._spawn(output)

    def shorten_log(self) -> None:
        """Empty a log that has grown too long, and keep a copy beside it.

        The log is copied, not renamed, because the child keeps writing to the same file.
        """
        if self._log is None or not self._log.exists():
            return
        if self._log.stat().st_size > _LOG_LIMIT_BYTES:
            copy = self._log.with_suffix(".log.1")
            copy.unlink(missing_ok=True)
            shutil.copy(self._log, copy)
            os.truncate(self._log, 0)
            self._log_start = 0

    def check(self) -> None:
        """Check that the child has not ended.

        Raises:
            ConfigurationError: it has ended; the message holds the reason from its log.
        """
        if self._child is not None and self._child.poll() is not None:
            raise ConfigurationError(f"{self._name} ended: {self.end_reason()}")

    def ending(self) -> str:
        """Describe the end in one line: exit code or signal, and the reason from the log."""
        code = None if self._child is None else self._child.poll()
        if code is None:
            return f"{self._name} is not running"
        if code == -signal.SIGKILL:
            # the log of a process that was killed has no reason, only older errors
            return f"{self._name} was ended by SIGKILL"
        end = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"{self._name} {end}: {self.end_reason()}"

    def end_reason(self) -> str:
        """Return the reason for the end as the log gives it, and the path of the log.

        The reason is the last line since the start that names an error, else the last line.
        """
        if self._log is None or not self._log.exists():
            return "see above"
        lines = self._last_lines()
        if not lines:
            return f"no output (log: {self._log})"
        reasons = [line for line in lines if _is_reason(line)]
        return f"{(reasons or lines)[-1].strip()} (log: {self._log})"

    def _last_lines(self) -> list[str]:
        assert self._log is not None  # callers have checked it
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LAST_BYTES))
            return log.read().decode(errors="replace").strip().splitlines()

    async def finish(self, timeout: timedelta) -> int:
        """Wait until the child ends by itself; return its exit code.

        Raises:
            TimeoutError: it takes longer than ``timeout``.
        """
        async with asyncio.timeout(timeout.total_seconds()):
            while self._child is not None and self._child.poll() is None:  # noqa: ASYNC110  # see the class
                await asyncio.sleep(_POLL_SECONDS)
        return 0 if self._child is None else self._child.wait()

    async def wait_for_end(self, longest: timedelta) -> None:
        """Wait until the child has ended, at most for a time; nothing is done until then."""
        child = self._child
        descriptor = None if child is None else child.descriptor_of_end()
        if descriptor is None:
            if self.is_running:
                await asyncio.sleep(min(longest.total_seconds(), _END_POLL_SECONDS))
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            async with asyncio.timeout(longest.total_seconds()):
                await ended.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    async def stop(self, timeout: timedelta) -> None:
        """Signal the child to end; kill it if it takes longer than ``timeout``."""
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(self._stop_signal)
        try:
            await self.finish(timeout)
        except TimeoutError:
            child.kill()
            child.wait()
        self._child = None

    def _spawn(self, output: IO[bytes] | None) -> None:
        if self._fork is not None and output is not None:
            self._child = self._fork(output.fileno())
            if self._child is not None:
                return
        self._child = _Started(  # the command is built by us
            [*self._launcher(), "--", *self._command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the terminal's Ctrl-C must reach only us: we stop it in order
            umask=PRIVATE_MASK,
        )

    def _launcher(self) -> list[str]:
        options = ["--parent", str(os.getpid()), "--signal", str(int(self._stop_signal))]
        if self._user is not None:
            options += ["--uid", str(self._user.uid), "--gid", str(self._user.gid)]
            options += ["--reach"] if self._user.reach else []
        return [sys.executable, "-I", "-S", str(_LAUNCHER), *options]


def _is_reason(line: str) -> bool:
    return _REASON.search(line) is not None and _CONNECTION_ERRORS.search(line) is None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_alive(pid: int) -> bool:
    """Return whether a process has this id; a zombie counts as gone where /proc reveals it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not _PROC.is_dir()


def command_of(pid: int) -> str:
    """Return the command line of a process, to detect a reused id; empty if the process is gone."""
    if _PROC.is_dir():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return ""
    command = ["/bin/ps", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603


async def end_orphan(pid: int, name: str, number: signal.Signals, timeout: timedelta) -> None:
    """End a process whose owner was killed, or wait for its end.

    The caller holds the lock of the directory, so no other process depends on this one.

    Raises:
        ConfigurationError: the process does not end in time.
    """
    if not is_alive(pid):
        return
    os.kill(pid, number)
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            while is_alive(pid):  # noqa: ASYNC110  # not our child: its end can only be polled
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise ConfigurationError(
            f"an earlier {name} (process {pid}) does not end", "kill it, then try again"
        ) from None
