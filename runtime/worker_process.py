"""A worker in a process of its own: ready when entered, ended when left, gone when we are."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from runtime.child import ChildProcess
from runtime.errors import ConfigurationError

__all__ = ["worker_process"]

_READY_TIMEOUT = timedelta(seconds=120)
_POLL_SECONDS = 0.02


@asynccontextmanager
async def worker_process(
    *arguments: str,
    environment: Mapping[str, str],
    stop_timeout: timedelta,
    log: Path | None = None,
) -> AsyncIterator[ChildProcess]:
    """``headrace worker ARGUMENTS`` with ``environment`` on top of ours.

    It logs to ``log``, or to where we do; it is killed when it doesn't end in ``stop_timeout``.

    Raises:
        ConfigurationError: it isn't ready in time, or ended; the message holds its last words.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        ready = Path(directory) / "ready"
        # -P: the current directory may hold packages named like ours
        command = [sys.executable, "-P", "-m", "gateway.main", "worker", *arguments]
        child = ChildProcess(
            "the worker",
            [*command, "--ready-file", str(ready)],
            log=log,
            environment={**os.environ, **environment},
        )
        child.start()
        try:
            await _wait_until_ready(child, ready)
            yield child
        finally:
            await child.stop(stop_timeout)


async def _wait_until_ready(child: ChildProcess, ready: Path) -> None:
    try:
        async with asyncio.timeout(_READY_TIMEOUT.total_seconds()):
            while not ready.exists():  # noqa: ASYNC240  # a look at a file in memory
                child.check()
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise ConfigurationError(
            f"the worker is not ready after {_READY_TIMEOUT}: {child.last_words()}"
        ) from None
