"""Real worker processes for tests, by the command that a person uses."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.child import ChildProcess
from runtime.worker_process import worker_process
from tests.support.databases import Database

__all__ = ["WorkerProcess", "tree"]

_STOP_TIMEOUT = timedelta(minutes=10)
"""Longer than a test may take: a worker that doesn't end fails the test, and is not killed."""


class WorkerProcess:
    """``headrace worker``, ready when entered, ended when left."""

    def __init__(
        self,
        redis_url: str,
        database: Database,
        environment: Mapping[str, str],
        *arguments: str,
    ) -> None:
        servers = {
            "HEADRACE_REDIS_URL": redis_url,
            "HEADRACE_DATABASE_URL": database.worker_url,
        }
        self._worker = worker_process(
            *arguments, environment={**servers, **environment}, stop_timeout=_STOP_TIMEOUT
        )
        self._child: ChildProcess | None = None

    async def __aenter__(self) -> Self:
        self._child = await self._worker.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._worker.__aexit__(kind, error, trace)

    def kill(self) -> None:
        """End it as the kernel would, in the middle of whatever it does."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGKILL)


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
