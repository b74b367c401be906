"""Worker processes of chaos tests: start, signals and state."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from tests.chaos.replays import Strike
from tests.support.forking import ROOT, Forked, fork, fork_server, forks_from
from tests.support.orders import Order
from tests.support.waiting import eventually

__all__ = ["Fleet", "Worker", "fleet"]

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOG_LINES = 15
_numbers = count(1)


@dataclass
class Worker:
    """Worker process; it ends with the test run at the latest.

    ``ended_at`` is the time when its end was noticed (``time.monotonic``).
    """

    process: Forked
    log: Path
    ready_file: Path
    ended_at: float | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """True until the process has ended, also while it is stopped."""
        if self.ended_at is None and self.exit_code is not None:
            self.ended_at = monotonic()
        return self.ended_at is None

    @property
    def is_stopped(self) -> bool:
        """True while SIGSTOP holds the process."""
        status = Path(f"/proc/{self.pid}/stat")
        return self.is_running and status.read_text().rpartition(")")[2].split()[0] == "T"

    @property
    def exit_code(self) -> int | None:
        """Exit code, or the negative number of the fatal signal; None while the process runs."""
        return self.process.exit_code

    @property
    def consumer(self) -> str:
        """Prefix of the names of its consumers in Redis."""
        return f"{socket.gethostname()}-{self.pid}-"

    async def ready(self) -> None:
        """Wait until the worker handles events."""
        await eventually(self._is_ready, f"worker {self.pid} is ready", timeout=_START_SECONDS)

    async def ended(self, timeout: float = _STOP_SECONDS) -> None:
        """Wait until the process has ended, for any reason."""
        await eventually(
            lambda: not self.is_running, f"worker {self.pid} ends", timeout=timeout, every=0.005
        )

    async def stop(self) -> None:
        """Stop the worker with SIGTERM, and assert that it exits with 0."""
        self.send(signal.SIGTERM)
        await self.ended()
        assert self.exit_code == 0, f"worker {self.pid} ended with {self.exit_code}\n{self.tail()}"

    async def kill(self) -> None:
        """Kill the worker with SIGKILL."""
        self.send(signal.SIGKILL)
        await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        self.process.send(number)

    def most_memory_mb(self) -> float | None:
        """Peak of resident memory in MB; None if the process has ended."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        return int(kilobytes[0]) / 1024 if kilobytes else None

    def tail(self) -> str:
        """Last lines of the worker's log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        state = "running" if self.is_running else f"ended, exit code {self.exit_code}"
        return "\n".join([f"worker {self.pid} ({state}):", *(f"  {line}" for line in lines)])

    def _is_ready(self) -> bool:
        assert self.is_running, f"it ended before it was ready\n{self.tail()}"
        return self.ready_file.exists()


@dataclass(frozen=True)
class Fleet:
    """Starts workers from a server that forks them with all modules loaded.

    ``root`` is the tree with their code.
    """

    socket: Path
    directory: Path
    root: Path = ROOT

    async def start(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        strike: Strike | None = None,
        chunkers: str = "",
        ready: bool = True,
    ) -> Worker:
        """Start ``headrace worker ARGUMENTS`` with ``environment`` added to the current one.

        ``strike`` sends a signal to the worker or another process at a failpoint. ``chunkers``
        names a module with the function ``chunk`` for the parsers. ``ready``: wait until the worker
        handles events.
        """
        stem = self.directory / str(next(_numbers))
        log, ready_file = stem.with_suffix(".log"), stem.with_suffix(".ready")
        order = Order(
            arguments=["worker", *arguments, "--ready-file", str(ready_file)],
            environment={**os.environ, "PYTHONPATH": str(self.root), **environment},
            strike=[] if strike is None else strike.arguments,
            chunkers=chunkers,
        )
        process = await asyncio.to_thread(self._fork, order, log)
        worker = Worker(process, log, ready_file)
        if ready:
            await worker.ready()
        return worker

    def _fork(self, order: Order, log: Path) -> Forked:
        with Path(os.devnull).open("rb") as null, log.open("ab") as output:
            return fork(self.socket, order, [null.fileno(), output.fileno(), output.fileno()])


@contextmanager
def fleet(root: Path = ROOT) -> Iterator[Fleet]:
    """Workers of this tree or of another; those of another end with the context."""
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory(prefix="hr-"))
        server = fork_server() if root == ROOT else stack.enter_context(forks_from(root))
        yield Fleet(server, Path(directory), root)
