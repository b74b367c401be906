"""Worker processes, started cheaply, and everything that can be done to one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic

from runtime.child import is_alive
from tests.chaos.fork_server import Order
from tests.chaos.replays import Strike
from tests.support.waiting import eventually

__all__ = ["Fleet", "Worker", "fleet"]

_ROOT = Path(__file__).parents[2]
_SERVER = Path("tests", "chaos", "fork_server.py")
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOG_LINES = 15
_numbers = count(1)


@dataclass
class Worker:
    """A worker process; it ends with the run of tests if nobody ends it before.

    ``ended_at`` is when its end was seen (``time.monotonic``).
    """

    pid: int
    log: Path
    ready_file: Path
    exit_file: Path
    ended_at: float | None = field(default=None, init=False)

    @property
    def is_running(self) -> bool:
        """Whether it lives; a stopped one does too."""
        if self.ended_at is None and not is_alive(self.pid):
            self.ended_at = monotonic()
        return self.ended_at is None

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP holds it."""
        status = Path(f"/proc/{self.pid}/stat")
        return self.is_running and status.read_text().rpartition(")")[2].split()[0] == "T"

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and for one that was killed."""
        return int(self.exit_file.read_text()) if self.exit_file.exists() else None

    @property
    def consumer(self) -> str:
        """What the names of its consumers in Redis begin with."""
        return f"{socket.gethostname()}-{self.pid}-"

    async def ready(self) -> None:
        """Wait until it handles events."""
        await eventually(self._is_ready, f"worker {self.pid} is ready", timeout=_START_SECONDS)

    async def ended(self, timeout: float = _STOP_SECONDS) -> None:
        """Wait until it is gone, whatever ends it."""
        await eventually(
            lambda: not self.is_running, f"worker {self.pid} ends", timeout=timeout, every=0.005
        )

    async def stop(self) -> None:
        """End it in order (SIGTERM); that it does so is checked."""
        self.send(signal.SIGTERM)
        await self.ended()
        assert self.exit_code == 0, f"worker {self.pid} ended with {self.exit_code}\n{self.tail()}"

    async def kill(self) -> None:
        """End it as the kernel would (SIGKILL)."""
        self.send(signal.SIGKILL)
        await self.ended()

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, or another; nothing happens when it is gone."""
        if self.is_running:
            os.kill(self.pid, number)

    def most_memory_mb(self) -> float | None:
        """The most resident memory that it ever had; None once it is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        return int(kilobytes[0]) / 1024 if kilobytes else None

    def tail(self) -> str:
        """The last lines that it logged."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        state = "running" if self.is_running else f"ended, exit code {self.exit_code}"
        return "\n".join([f"worker {self.pid} ({state}):", *(f"  {line}" for line in lines)])

    def _is_ready(self) -> bool:
        assert self.is_running, f"it ended before it was ready\n{self.tail()}"
        return self.ready_file.exists()


@dataclass(frozen=True)
class Fleet:
    """Starts workers from a server that forks them with everything loaded.

    ``root`` is the tree whose code they run.
    """

    socket: Path
    directory: Path
    root: Path = _ROOT

    async def start(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        strike: Strike | None = None,
        chunkers: str = "",
        ready: bool = True,
    ) -> Worker:
        """``headrace worker ARGUMENTS`` with ``environment`` on top of ours.

        With ``strike`` it sends itself (or somebody else) a signal at a kill point. ``chunkers``
        names a module whose ``chunk`` cuts. ``ready``: wait until it handles events.
        """
        stem = self.directory / str(next(_numbers))
        files = [stem.with_suffix(suffix) for suffix in (".log", ".ready", ".exit")]
        order = Order(
            arguments=["worker", *arguments, "--ready-file", str(files[1])],
            environment={**os.environ, "PYTHONPATH": str(self.root), **environment},
            strike=[] if strike is None else strike.arguments,
            chunkers=chunkers,
            log=str(files[0]),
            exit_file=str(files[2]),
        )
        files[0].touch()
        worker = Worker(await asyncio.to_thread(self._fork, order), *files)
        if ready:
            await worker.ready()
        return worker

    def _fork(self, order: Order) -> int:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_START_SECONDS)
            client.connect(str(self.socket))
            client.sendall(order.to_line())
            with client.makefile("rb") as answer:
                return int(answer.readline())


@contextmanager
def fleet(root: Path = _ROOT) -> Iterator[Fleet]:
    """A fork server of this tree, or of another; it and its workers end with the context."""
    directory = Path(tempfile.mkdtemp(prefix="hr-"))
    path = directory / "socket"
    command = [sys.executable, "-P", str(root / _SERVER), str(path)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as server:
        try:
            asyncio.run(_listening(server, path))
            yield Fleet(path, directory, root)
        finally:
            server.kill()
    shutil.rmtree(directory)


async def _listening(server: subprocess.Popen[bytes], path: Path) -> None:
    def listens() -> bool:
        assert server.poll() is None, "the fork server ended"
        return path.exists()

    await eventually(listens, "the fork server listens", timeout=_START_SECONDS)
