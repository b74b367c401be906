"""Command line as a separate process: its output and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.databases import Database
from tests.support.forking import ROOT, Forked, fork, fork_server
from tests.support.orders import Order
from tests.support.waiting import within

__all__ = ["Cli", "Command", "Result", "environment_of"]

_LONGEST_SECONDS = 100.0


@dataclass(frozen=True)
class Result:
    """Output and exit code of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """JSON of the last line of stdout."""
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def objects(self) -> list[dict[str, Any]]:
        """JSON of every line of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def line(self) -> str:
        """Only line of stderr of a failed command, checked to be its error."""
        assert len(self.stderr.strip().splitlines()) == 1, self.stderr
        return self.last_line

    @property
    def last_line(self) -> str:
        """Last line of stderr of a failed command that may have printed progress before."""
        assert self.code == 1, self
        line = self.stderr.strip().splitlines()[-1]
        assert line.startswith("headrace: ")
        assert "Traceback" not in self.stderr
        return line


class Command:
    """``headrace ARGUMENTS`` in a process from the fork server, with its output."""

    def __init__(self, process: Forked, printed: Sequence[IO[bytes]]) -> None:
        self._process = process
        self._printed = printed

    @classmethod
    async def start(
        cls,
        *arguments: str,
        environment: Mapping[str, str],
        stdin: bytes = b"",
        strike: Sequence[str] = (),
        server: Path | None = None,
        directory: str = "",
    ) -> Command:
        """Start a command.

        ``strike``: arguments of ``arm_with``, empty for none. ``server``: socket of the fork
        server; None for that of this run. ``directory``: the one that it runs in; empty: that of
        the server.
        """
        order = Order([*arguments], {**os.environ, **environment}, [*strike], directory=directory)
        given, *printed = (TemporaryFile() for _ in range(3))  # noqa: SIM115  # result closes them
        with given:
            given.write(stdin)
            given.seek(0)
            streams = [stream.fileno() for stream in (given, *printed)]
            if server is None:
                server = await asyncio.to_thread(fork_server)
            return cls(await asyncio.to_thread(fork, server, order, streams), printed)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process.exit_code is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send(number)

    def printed(self) -> str:
        """Output to both streams so far."""
        return "".join(map(_text, self._printed))

    async def result(self, timeout: float) -> Result:
        """Wait for the end of the process; it is killed after ``timeout`` seconds."""
        try:
            async with within(timeout):
                code = await self._process.wait()
            return Result(code, *map(_text, self._printed))
        finally:
            self._process.send(signal.SIGKILL)
            await self._process.wait()
            for stream in self._printed:
                stream.close()


def _text(printed: IO[bytes]) -> str:
    """Whole output, read without a seek, which would move the position for writes."""
    return os.pread(printed.fileno(), os.fstat(printed.fileno()).st_size, 0).decode(
        errors="replace"
    )


@dataclass(frozen=True)
class Cli:
    """``headrace`` in an environment.

    The process is forked with all modules loaded, which takes a tenth of the time of a start. With
    ``as_typed`` it is started as from a shell. ``directory`` is the one in which it runs; empty:
    that of the tests.
    """

    environment: dict[str, str]
    as_typed: bool = False
    directory: str = ""

    def within(self, directory: Path) -> Cli:
        """The same in another directory."""
        return replace(self, directory=str(directory))

    @property
    def typed(self) -> Cli:
        """The same, started as from a shell."""
        return replace(self, as_typed=True)

    async def __call__(
        self, *arguments: str, stdin: str | bytes = "", **environment: str
    ) -> Result:
        whole = {**self.environment, **environment}
        given = stdin.encode() if isinstance(stdin, str) else stdin
        if self.as_typed:
            return await _typed(arguments, whole, given)
        command = await Command.start(
            *arguments, environment=whole, stdin=given, directory=self.directory
        )
        return await command.result(_LONGEST_SECONDS)


async def _typed(arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> Result:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with within(_LONGEST_SECONDS):
        stdout, stderr = await process.communicate(stdin)
    assert process.returncode is not None
    return Result(process.returncode, stdout.decode(), stderr.decode())


def environment_of(redis_url: str, database: Database, home: Path) -> dict[str, str]:
    """Settings for existing servers, an empty home and a fast model."""
    return {
        "HEADRACE_MODEL": HASHING_MODEL,
        "HEADRACE_HOME": str(home),
        "HEADRACE_REDIS_URL": redis_url,
        "HEADRACE_DATABASE_URL": database.operator_url,
        "HEADRACE_OWNER_DATABASE_URL": database.owner_url,
    }
