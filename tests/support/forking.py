"""Processes of the fork server: start, wait and end."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.support.orders import LISTENING, Order

__all__ = ["ROOT", "Forked", "fork", "fork_server", "forks_from"]

ROOT = Path(__file__).parents[2]
_SERVER = Path("tests", "support", "fork_server.py")
_START_SECONDS = 60.0
_POLL_SECONDS = 0.005
_starting = threading.Lock()


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


def fork_server() -> Path:
    """Socket of this tree's fork server, started by the first call; it ends with this process."""
    with _starting:
        return _shared_server()


@cache
def _shared_server() -> Path:
    servers = ExitStack()
    atexit.register(servers.close)
    return servers.enter_context(forks_from(ROOT))


@contextmanager
def forks_from(root: Path) -> Iterator[Path]:
    """Socket of a tree's fork server; it and its processes end with the context."""
    with tempfile.TemporaryDirectory(prefix="hr-") as directory:
        path = Path(directory) / "socket"
        command = [sys.executable, "-P", str(root / _SERVER), str(path)]
        environment = {**os.environ, "PYTHONPATH": str(root), "TOKENIZERS_PARALLELISM": "false"}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == LISTENING, "the fork server ended"
                yield path
            finally:
                server.kill()
