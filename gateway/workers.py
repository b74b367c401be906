"""Worker processes that use the servers of a command."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

from runtime.child import ChildProcess
from runtime.cores import model_threads, parser_processes
from runtime.settings import Settings
from runtime.worker_process import WorkerProcess, worker_process

__all__ = ["supervised_workers", "worker"]

_MARGIN = timedelta(seconds=5)


def worker(
    settings: Settings, *, log: Path | None = None
) -> AbstractAsyncContextManager[ChildProcess]:
    """Worker that uses the servers of ``settings``; without ``log``, it logs to our output.

    Raises (when entered):
        ConfigurationError: it is not ready in time, or ended; the message holds its last log lines.
    """
    return worker_process(
        environment=_environment(settings, 1), stop_timeout=_stop_timeout(settings), log=log
    )


def supervised_workers(settings: Settings, count: int) -> list[WorkerProcess]:
    """Workers, not yet started, that share the cores of this machine.

    Each logs to its own file in the home.
    """
    return [
        WorkerProcess(
            environment=_environment(settings, count),
            stop_timeout=_stop_timeout(settings),
            log=settings.home_directory / f"worker-{number}.log",
            name="the worker" if count == 1 else f"worker {number}",
        )
        for number in range(1, count + 1)
    ]


def _environment(settings: Settings, workers: int) -> dict[str, str]:
    return {
        "HEADRACE_REDIS_URL": settings.redis_url,
        "HEADRACE_DATABASE_URL": settings.database_url,
        "HEADRACE_OWNER_DATABASE_URL": settings.owner_database_url,
        "HEADRACE_MODEL_THREADS": str(model_threads(settings, workers)),
        "HEADRACE_CHUNKING_PROCESSES": str(parser_processes(settings, workers)),
    }


def _stop_timeout(settings: Settings) -> timedelta:
    return settings.shutdown_timeout + _MARGIN
