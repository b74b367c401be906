"""``headrace worker``: run one process that handles events."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from gateway.servers import configured, require_database
from gateway.session import readiness_file, run_service
from processors.worker import ROLES, run_worker
from runtime.errors import ConfigurationError, UsageError
from runtime.metrics import snapshot
from runtime.metrics_server import metrics_server
from runtime.process_health import settle_heap
from runtime.settings import Settings

__all__ = ["command"]

log = structlog.get_logger(__name__)


class Role(StrEnum):
    """Roles of a worker, named after the consumer group that each reads with."""

    INDEXER = "indexer"
    EMBEDDER = "embedder"
    ANSWERER = "answerer"
    ARCHIVER = "archiver"
    BRIDGE = "bridge"


def command(
    only: Annotated[
        Role | None, typer.Option(help="Run this role only; default: all but bridge.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Batches processed at the same time, per lane.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="File that exists while the worker is ready.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve metrics for Prometheus at this port."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address of --metrics-port; anyone who reaches it may read.")
    ] = "127.0.0.1",
) -> None:
    """Index and embed documents, answer queries and archive changes until SIGTERM or Ctrl-C."""
    roles = list(ROLES) if only is None else [str(only)]
    address = None if metrics_port is None else (metrics_host, metrics_port)
    run_service(
        lambda settings, stop: _work(settings, stop, roles, concurrency, ready_file, address)
    )


async def _work(
    settings: Settings,
    stop: asyncio.Event,
    roles: list[str],
    concurrency: int | None,
    ready_file: Path | None,
    metrics_address: tuple[str, int] | None,
) -> None:
    effective = configured(settings)
    if effective is None:
        raise ConfigurationError(
            "a worker needs servers",
            "run `headrace up`, or set HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL",
        )
    if concurrency is not None:
        effective = _with_concurrency(effective, concurrency)
    with readiness_file(ready_file) as announce:

        def ready() -> None:
            settle_heap()
            print("worker ready", flush=True)  # noqa: T201
            announce("")

        async with _scraped(metrics_address):
            await run_worker(require_database(effective), only=roles, stop=stop, ready=ready)
    log.info("worker.ended", **snapshot())


def _with_concurrency(settings: Settings, concurrency: int) -> Settings:
    if concurrency < 1:
        raise UsageError(f"--concurrency must be at least 1, not {concurrency}")
    return settings.model_copy(update={"concurrency": concurrency})


def _scraped(address: tuple[str, int] | None) -> AbstractAsyncContextManager[object]:
    """Serve metrics while the context is open, if there is an address."""
    return nullcontext() if address is None else metrics_server(*address)
