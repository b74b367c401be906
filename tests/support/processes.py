"""Real worker processes for tests."""

from __future__ import annotations

import signal
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.cli import Command
from tests.support.databases import Database
from tests.support.waiting import eventually

__all__ = ["WorkerProcess", "tree"]

_STOP_SECONDS = 600.0
"""Longer than a test may take, so that a worker that does not end fails the test."""


class WorkerProcess:
    """``headrace worker`` from the fork server, started and stopped with the context."""

    def __init__(
        self,
        redis_url: str,
        database: Database,
        environment: Mapping[str, str],
        *arguments: str,
    ) -> None:
        self._environment = {
            "HEADRACE_REDIS_URL": redis_url,
            "HEADRACE_DATABASE_URL": database.worker_url,
            "HEADRACE_MODEL": HASHING_MODEL,
            **environment,
        }
        self._arguments = arguments
        self._directory = TemporaryDirectory(prefix="headrace-")
        self._command: Command | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._command is not None
        return self._command.pid

    async def __aenter__(self) -> Self:
        ready = Path(self._directory.name) / "ready"
        arguments = ["worker", *self._arguments, "--ready-file", str(ready)]
        command = await Command.start(*arguments, environment=self._environment)
        self._command = command
        await eventually(
            lambda: ready.exists() or not command.is_running, "the worker is ready", timeout=60
        )
        assert command.is_running, await command.result(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._directory.cleanup()
        assert self._command is not None
        self._command.send(signal.SIGTERM)
        ended = await self._command.result(_STOP_SECONDS)
        sys.stderr.write(ended.stderr)  # shown in the report of a failed test

    def log(self) -> str:
        """Log so far."""
        assert self._command is not None
        return self._command.printed()

    def kill(self) -> None:
        """Kill the worker."""
        assert self._command is not None
        self._command.send(signal.SIGKILL)


def tree(pid: int) -> set[int]:
    """Process ids of a process and its descendants."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children[parent].append(int(status.parent.name))
    found: set[int] = set()
    added = [pid]
    while added:
        found.update(added)
        added = [child for parent in added for child in children[parent]]
    return found
