"""Start of a worker: its report to the supervisor, and the reasons why it ends."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from runtime.errors import ConfigurationError
from runtime.worker_process import worker_process
from tests.support.cli import Cli, environment_of
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


async def test_a_bridge_without_kafka_says_so_in_one_line(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """So does an indexer whose log is said to be in Kafka: it names the bridge."""
    worker = {**environment_of(redis_url, database, tmp_path), "HEADRACE_LOG_LEVEL": "error"}
    worker["HEADRACE_DATABASE_URL"] = database.worker_url

    async def refusal(role: str, **variables: str) -> str:
        return (await Cli({**worker, **variables})("worker", "--only", role)).last_line

    nowhere = json.dumps({"brokers": ["127.0.0.1:1"]})
    assert "Kafka can't be reached" in await refusal("bridge", HEADRACE_BRIDGE=nowhere)
    assert "a bridge needs a Kafka broker" in await refusal("bridge")
    for variable in ("HEADRACE_REDIS_URL", "HEADRACE_BROKER_URL"):
        result = await Cli({**worker, variable: "kafka://localhost:9092"})("worker")
        assert result.code
        assert "headrace worker --only bridge" in result.stderr
