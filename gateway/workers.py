"""Worker processes of ours: ready when entered, ended when left, gone when we are."""

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
from runtime.settings import Settings

__all__ = ["worker"]

_READY_TIMEOUT = timedelta(seconds=120)
_POLL_SECONDS = 0.02
_MARGIN = timedelta(seconds=5)


@asynccontextmanager
async def worker(settings: Settings, *, log: Path | None = None) -> AsyncIterator[ChildProcess]:
    """A worker at the servers of ``settings``; it logs to ``log``, or to where we do.

    Raises:
        ConfigurationError: it ended before it was ready; the message holds its last words.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
        ready = Path(directory) / "ready"
        # -P: the current directory may hold packages named like ours
        command = [sys.executable, "-P", "-m", "gateway.main", "worker", "--ready-file", str(ready)]
        child = ChildProcess("the worker", command, log=log, environment=_environment(settings))
        child.start()
        try:
            await _wait_until_ready(child, ready)
            yield child
        finally:
            await child.stop(settings.shutdown_timeout + _MARGIN)


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


def _environment(settings: Settings) -> Mapping[str, str]:
    return {
        **os.environ,
        "HEADRACE_REDIS_URL": settings.redis_url,
        "HEADRACE_DATABASE_URL": settings.database_url,
        "HEADRACE_OWNER_DATABASE_URL": settings.owner_database_url,
    }
