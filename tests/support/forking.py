"""Processes of the fork server: start, wait and end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.orders import LISTENING, Order

__all__ = [
    "ROOT",
    "Forked",
    "fork",
    "fork_server",
    "forks_from",
    "shared_by_run",
    "shared_directory",
]

ROOT = Path(__file__).parents[2]
_SERVER = Path("tests", "support", "fork_server.py")
_START_SECONDS = 60.0
_POLL_SECONDS = 0.005
_SHARED = "TESTS_SHARED_DIRECTORY"
"""Variable with the directory of what the processes of one run share."""
_PROVIDERS = "providers"
_starting = threading.Lock()
_servers: list[subprocess.Popen[bytes]] = []
"""Servers that this process started: an object that goes warns that its process runs."""


class Forked:
    """Process that the fork server started."""

    def __init__(self, pid: int, server: socket.socket) -> None:
        self.pid = pid
        self._server = server
        self._exit_code: int | None = None
        server.setblocking(False)

    @property
    def exit_code(self) -> int | None:
        """Exit code, or the negative number of the fatal signal; None while the process runs."""
        if self._exit_code is None:
            with suppress(BlockingIOError):
                # without a reply the server, and so the process, has ended
                self._exit_code = int(self._server.recv(16) or -signal.SIGKILL)
                self._server.close()
        return self._exit_code

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        while (code := self.exit_code) is None:  # noqa: ASYNC110  # it may outlive the loop
            await asyncio.sleep(_POLL_SECONDS)
        return code


def fork(server: Path, order: Order, streams: Sequence[int]) -> Forked:
    """Fork a process from a server's socket, with the file descriptors as its standard streams."""
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(_START_SECONDS)
        client.connect(str(server))
        order.send(client, streams)
        return Forked(_line(client), client)
    except BaseException:
        client.close()
        raise


def _line(client: socket.socket) -> int:
    """Number in a line; read by the byte, since another line may follow."""
    text = b""
    while not text.endswith(b"\n"):
        text += client.recv(1) or b"-1\n"
    return int(text)


@contextmanager
def shared_by_run() -> Iterator[None]:
    """Give this process and its children a directory of what they share; it ends with the context.

    Nothing is in it before it is needed: the fork server costs as much as a hundred tests.
    """
    if _SHARED in os.environ:
        yield
        return
    # its name is in the command line of what is forked, by which commands recognize an `up`
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        life = Path(directory) / "life"
        os.mkfifo(life)
        end = os.open(life, os.O_RDWR)  # the fork server ends once nothing can write to it
        os.environ[_SHARED] = directory
        try:
            yield
        finally:
            del os.environ[_SHARED]
            os.close(end)


def shared_directory() -> Path:
    """Directory of what the processes of a run share."""
    return Path(os.environ[_SHARED])


@cache
def fork_server() -> Path:
    """Socket of this tree's fork server, which the processes of a run share.

    The first call starts it, and it ends with the run.
    """
    with _starting:
        return _shared_server(shared_directory())


def _shared_server(directory: Path) -> Path:
    path = directory / "socket"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with (directory / "life").open("rb") as life:
                _await_start(_start(ROOT, path, _PROVIDERS, stdin=life))
    return path


@contextmanager
def forks_from(root: Path, *preloaded: str) -> Iterator[Path]:
    """Socket of a tree's fork server; it and its processes end with the context."""
    with tempfile.TemporaryDirectory(prefix="hr-") as directory:
        path = Path(directory) / "socket"
        with _start(root, path, *preloaded) as server:
            try:
                _await_start(server)
                yield path
            finally:
                server.kill()


def _start(
    root: Path, path: Path, *preloaded: str, stdin: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", str(root / _SERVER), str(path), *preloaded]
    environment = {**os.environ, "PYTHONPATH": str(root), "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.Popen(command, env=environment, stdin=stdin, stdout=subprocess.PIPE)


def _await_start(server: subprocess.Popen[bytes]) -> None:
    _servers.append(server)
    assert server.stdout is not None
    assert server.stdout.readline() == LISTENING, "the fork server ended"
