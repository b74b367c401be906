"""Worker processes that work at the servers of a command."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

from runtime.child import ChildProcess
from runtime.cores import model_threads, parser_processes
from runtime.settings import Settings
from runtime.worker_process import worker_process

__all__ = ["worker"]

_MARGIN = timedelta(seconds=5)


def worker(
    settings: Settings, *, log: Path | None = None, workers: int = 1
) -> AbstractAsyncContextManager[ChildProcess]:
    """A worker at the servers of ``settings``; it logs to ``log``, or to where we do.

    ``workers``: how many of them share the cores of this machine.

    Raises (when entered):
        ConfigurationError: it isn't ready in time, or ended; the message holds its last words.
    """
    environment = {
        "HEADRACE_REDIS_URL": settings.redis_url,
        "HEADRACE_DATABASE_URL": settings.database_url,
        "HEADRACE_OWNER_DATABASE_URL": settings.owner_database_url,
        "HEADRACE_MODEL_THREADS": str(model_threads(settings, workers)),
        "HEADRACE_CHUNKING_PROCESSES": str(parser_processes(settings, workers)),
    }
    stop_timeout = settings.shutdown_timeout + _MARGIN
    return worker_process(environment=environment, stop_timeout=stop_timeout, log=log)
