"""Readiness of a worker: its report to the supervisor."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from runtime.errors import ConfigurationError
from runtime.worker_process import worker_process
from tests.support.databases import Database

STOP_TIMEOUT = timedelta(seconds=30)


async def test_readiness_is_reported_on_standard_output(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A worker logs a line when it is ready, for supervisors that can't read the readiness file."""
    log = tmp_path / "worker.log"
    environment = {"HEADRACE_REDIS_URL": redis_url, "HEADRACE_DATABASE_URL": database.worker_url}
    async with worker_process(environment=environment, stop_timeout=STOP_TIMEOUT, log=log):
        assert "worker ready" in log.read_text().splitlines()


async def test_a_worker_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    """The error contains the last lines of the worker's log."""
    log = tmp_path / "worker.log"
    environment = {"HEADRACE_REDIS_URL": "", "HEADRACE_HOME": str(tmp_path / "home")}
    worker = worker_process(environment=environment, stop_timeout=STOP_TIMEOUT, log=log)
    with pytest.raises(ConfigurationError, match="a worker needs servers"):
        await worker.__aenter__()
