"""Control of one parser process by its parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from processors.chunking.sandbox.child import OUT_OF_MEMORY
from processors.chunking.sandbox.frames import LENGTH_BYTES, length_of
from runtime.errors import Unavailable

__all__ = ["ExitCause", "Parser", "ParserSettings"]

_CHILD_MODULE = "processors.chunking.sandbox.child"
_START_TIMEOUT = timedelta(seconds=15)
_MAX_STALLED_STEPS = 6
_LONGEST_ANSWER_BYTES = 256 * 2**20
_BUFFER_BYTES = 2**20
_EXIT_SECONDS = 1.0
_PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "LD_LIBRARY_PATH")


class ExitCause(StrEnum):
    """Cause of a process's end."""

    TIME = "time"
    STANDSTILL = "standstill"
    MEMORY = "memory"
    CRASH = "crash"


_EXIT_CAUSES: dict[int | None, ExitCause] = {
    -signal.SIGPROF: ExitCause.TIME,
    OUT_OF_MEMORY: ExitCause.MEMORY,
    -signal.SIGABRT: ExitCause.MEMORY,  # libraries in C++ and Rust abort if they get no memory
}


@dataclass(frozen=True, slots=True)
class ParserSettings:
    """Limits per document, and the tokenizer and chunkers that a process loads."""

    timeout: timedelta
    extraction_timeout: timedelta
    memory_bytes: int
    max_chunks: int
    tokenizer_path: Path
    chunkers: str

    def argument(self) -> str:
        """Encode the settings as the child's argument."""
        return json.dumps(
            {
                "timeout_seconds": self.timeout.total_seconds(),
                "extraction_seconds": self.extraction_timeout.total_seconds(),
                "memory_bytes": self.memory_bytes,
                "max_chunks": self.max_chunks,
                "tokenizer": str(self.tokenizer_path),
                "chunkers": self.chunkers,
            }
        )


class Parser:
    """A process that is started when needed, and replaced after it has ended.

    Only one task may use it at a time.
    """

    def __init__(self, settings: ParserSettings) -> None:
        self._settings = settings
        self._process: Process | None = None
        self._killed = False
        self._stuck = False
        self.fresh = True

    async def start(self) -> None:
        """Make sure that a process runs and is ready.

        Raises:
            Unavailable: the process ended, or was not ready in time.
        """
        if self._process is not None and self._process.returncode is None and not self._killed:
            return
        await self.close()
        self._killed = self._stuck = False
        self.fresh = True
        self._process = await self._spawn()
        try:
            await self._answer(_START_TIMEOUT, computing_counts=True)
        except EOFError:
            await self.close()
            raise Unavailable(
                "a parser process did not start", "check the tokenizer's path and the memory limit"
            ) from None
        except BaseException:
            self.kill()
            raise

    async def _spawn(self) -> Process:
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _CHILD_MODULE, self._settings.argument()),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=_BUFFER_BYTES,
                env=_environment(),
            )
        except OSError as error:
            raise Unavailable(
                f"no parser process can be started ({error})", "free memory or end other processes"
            ) from error

    def send(self, requests: bytes) -> None:
        """Send requests; they stay in memory until the process reads them."""
        stdin = self._running().stdin
        if stdin is not None:
            stdin.write(requests)

    async def receive(self) -> bytes:
        """Receive the next answer.

        Raises:
            EOFError: the process has ended, or is stuck.
        """
        answer = await self._answer(self._settings.timeout, computing_counts=False)
        self.fresh = False
        return answer

    def kill(self) -> None:
        """End the process at once; ``start`` or ``close`` releases its resources."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """End the process and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
        await process.communicate()

    async def diagnose(self) -> ExitCause:
        """Close a process that sent no answer, and return the cause of its end."""
        process = self._process
        if process is None or self._stuck:
            await self.close()
            return ExitCause.STANDSTILL if self._stuck else ExitCause.CRASH
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _EXIT_SECONDS)
        await self.close()
        return _EXIT_CAUSES.get(process.returncode, ExitCause.CRASH)

    async def _answer(self, timeout: timedelta, *, computing_counts: bool) -> bytes:
        """Wait for an answer for up to ``_MAX_STALLED_STEPS`` timeouts.

        It waits in steps, so that a pause of the whole worker counts as one of them at most. Unless
        ``computing_counts``, a step in which the process used processor time restarts the count:
        for a document, the process ends itself when its processor time is used up. The first step
        always counts: most answers arrive within it, so that the time need not be read.
        """
        read = asyncio.ensure_future(self._read())
        used_seconds: float | None = None
        steps = 0
        try:
            while steps < _MAX_STALLED_STEPS:
                done, _ = await asyncio.wait({read}, timeout=timeout.total_seconds())
                if done:
                    return read.result()
                previous, used_seconds = used_seconds, self._used_seconds()
                computes = previous is not None and used_seconds not in (None, previous)
                steps = 0 if computes and not computing_counts else steps + 1
        finally:
            read.cancel()
        self._stuck = True
        raise EOFError("the process does not answer")

    def _used_seconds(self) -> float | None:
        return None if self._process is None else _processor_seconds(self._process.pid)

    async def _read(self) -> bytes:
        stdout = self._running().stdout
        if stdout is None:
            raise EOFError("the process has no output")
        length = length_of(await stdout.readexactly(LENGTH_BYTES))
        if length > _LONGEST_ANSWER_BYTES:
            raise EOFError("the answer is too long")
        return await stdout.readexactly(length)

    def _running(self) -> Process:
        if self._process is None:
            raise EOFError("the process has ended")
        return self._process


def _environment() -> dict[str, str]:
    """Environment of a parser, without keys and addresses of servers."""
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return passed | {
        "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _processor_seconds(pid: int) -> float | None:
    """Return the processor time of a process since its start.

    Returns None if the process is gone or the system does not report the time.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
