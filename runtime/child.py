"""A child process that we own, and that ends when we do: a server or a worker."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO

from runtime.errors import ConfigurationError, Unavailable
from runtime.private import open_private

__all__ = ["ChildProcess", "User", "command_of", "end_orphan", "is_alive"]

_LAUNCHER = Path(__file__).with_name("launch.py")
_PROC = Path("/proc")
_LOG_LIMIT_BYTES = 10 * 2**20
_POLL_SECONDS = 0.02
_PRIVATE_MASK = 0o077
_LAST_BYTES = 64 * 2**10
_REASON = re.compile(r"\b(?:FATAL|PANIC|ERROR|Fatal error|[Ee]rror)\b|No space left|^headrace: ")
"""What Postgres, Redis and our own commands mark the reason of their end by."""
_PASSING = re.compile(
    r"not yet accepting|is starting up|is shutting down|terminating connection|too many clients"
)
"""What Postgres calls fatal though it ends a single connection."""


@dataclass(frozen=True)
class User:
    """The system user that a child runs as.

    ``reach``: it keeps the right to enter directories that are closed to it.
    """

    uid: int
    gid: int
    reach: bool


class ChildProcess:
    """A child process whose end is tied to ours.

    Start it from a thread that lives as long as the child: Linux reports the death of the
    thread that forked, not of the process. Its end is polled for, because an asyncio subprocess
    belongs to one event loop, and a child may outlive that.
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
    ) -> None:
        self._name = name
        self._command = command
        self._log = log
        self._stop_signal = stop_signal
        self._user = user
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Process id while it runs.

        Raises:
            Unavailable: it isn't running.
        """
        if self._child is None or self._child.poll() is not None:
            raise Unavailable(f"{self._name} is not running; {self.last_words()}")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and hasn't ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it; its output goes to the log file, or where ours goes when there is none."""
        if self._log is None:
            self._spawn(None)
            return
        self.shorten_log()
        with open_private(self._log, "ab") as output:
            self._log_start = output.tell()
            self._spawn(output)

    def shorten_log(self) -> None:
        """Empty a log that has grown too long; a copy of it stays beside it.

        Copied, not renamed: the child goes on writing to the file that it was given.
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
        """Make sure that it hasn't ended.

        Raises:
            ConfigurationError: it has; the message holds what its log gives as the reason.
        """
        if self._child is not None and self._child.poll() is not None:
            raise ConfigurationError(f"{self._name} ended: {self.last_words()}")

    def ending(self) -> str:
        """How it ended, in one line: its exit code or signal, and the reason in its log."""
        code = None if self._child is None else self._child.poll()
        if code is None:
            return f"{self._name} is not running"
        if code == -signal.SIGKILL:
            # the log of a process that was killed has no reason, only older errors
            return f"{self._name} was ended by SIGKILL"
        how = f"was ended by {_name_of(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"{self._name} {how}: {self.last_words()}"

    def last_words(self) -> str:
        """What its log gives as the reason of its end, with where the rest is.

        That is the last line since its start that names an error, else the last line.
        """
        if self._log is None or not self._log.exists():
            return "see above"
        lines = self._last_lines()
        if not lines:
            return f"no output (log: {self._log})"
        reasons = [line for line in lines if _is_reason(line)]
        return f"{(reasons or lines)[-1].strip()} (log: {self._log})"

    def _last_lines(self) -> list[str]:
        assert self._log is not None  # its callers have looked
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LAST_BYTES))
            return log.read().decode(errors="replace").strip().splitlines()

    async def finish(self, timeout: timedelta) -> int:
        """Wait until it ends by itself; its exit code.

        Raises:
            TimeoutError: it takes longer than ``timeout``.
        """
        async with asyncio.timeout(timeout.total_seconds()):
            while self._child is not None and self._child.poll() is None:  # noqa: ASYNC110  # see the class
                await asyncio.sleep(_POLL_SECONDS)
        return 0 if self._child is None else self._child.wait()

    async def stop(self, timeout: timedelta) -> None:
        """Ask it to end; kill it when it takes longer than ``timeout``."""
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
        self._child = subprocess.Popen(  # noqa: S603  # the command is built by us
            [*self._launcher(), "--", *self._command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the terminal's Ctrl-C is for us: we stop it in order
            umask=_PRIVATE_MASK,
        )

    def _launcher(self) -> list[str]:
        options = ["--parent", str(os.getpid()), "--signal", str(int(self._stop_signal))]
        if self._user is not None:
            options += ["--uid", str(self._user.uid), "--gid", str(self._user.gid)]
            options += ["--reach"] if self._user.reach else []
        return [sys.executable, "-I", "-S", str(_LAUNCHER), *options]


def _is_reason(line: str) -> bool:
    return _REASON.search(line) is not None and _PASSING.search(line) is None


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_alive(pid: int) -> bool:
    """Whether a process of this id exists; a zombie counts as gone where the system tells."""
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
    """Command line of a process, so that a reused id isn't taken for it; empty when it's gone."""
    if _PROC.is_dir():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return ""
    command = ["/bin/ps", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603


async def end_orphan(pid: int, name: str, number: signal.Signals, timeout: timedelta) -> None:
    """End a process whose owner was killed, or wait for its end.

    The caller holds the lock of its directory, so nobody else counts on it.

    Raises:
        ConfigurationError: it doesn't end in time.
    """
    if not is_alive(pid):
        return
    os.kill(pid, number)
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            while is_alive(pid):  # noqa: ASYNC110  # not our child: nobody tells us
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise ConfigurationError(
            f"an earlier {name} (process {pid}) does not end: kill it, then try again"
        ) from None
