"""Real worker processes for tests, by the command that a person uses."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.databases import Database

__all__ = ["WorkerProcess", "tree"]

_READY = b"worker ready"


class WorkerProcess:
    """``headrace worker``, ready when entered, ended when left."""

    def __init__(
        self,
        redis_url: str,
        database: Database,
        environment: Mapping[str, str],
        *arguments: str,
    ) -> None:
        self._arguments = arguments
        self._environment = {
            **os.environ,
            "HEADRACE_REDIS_URL": redis_url,
            "HEADRACE_DATABASE_URL": database.worker_url,
            **environment,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.main", "worker", *self._arguments),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            async for line in self._process.stdout:
                if _READY in line:
                    return self
        raise AssertionError("the worker ended before it was ready; its stderr says why")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._running()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()

    def kill(self) -> None:
        """End it as the kernel would, in the middle of whatever it does."""
        self._running().kill()

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process


def tree(pid: int) -> set[int]:
    """A process and everything below it."""
    found = {pid}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found |= tree(int(status.parent.name))
    return found
