"""Servers that a module of chaos tests may break, and a stage over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from runtime.embedded import EmbeddedPostgres
from tests.chaos.figures import figures
from tests.chaos.fleet import Fleet, fleet
from tests.chaos.replays import Replays
from tests.chaos.runs import Chaos
from tests.chaos.staging import Stage
from tests.support.cli import environment_of
from tests.support.crashable_redis import CrashableRedis, redis_binaries
from tests.support.databases import fresh_database, start_migrated
from tests.support.running import headrace

WORKER: dict[str, Any] = {
    "model": HASHING_MODEL,
    "batch_documents": 16,
    "retry_delay": timedelta(milliseconds=100),
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measurements of the tests, a line for each figure."""
    for line in figures(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def worker_fleet() -> Iterator[Fleet]:
    """Fleet that starts worker processes quickly."""
    with fleet() as it:
        yield it


@pytest.fixture(scope="session")
def roomy_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """Migrated server with connections for the workers of several runs; tests must not break it."""
    home = tmp_path_factory.mktemp("roomy")
    server = EmbeddedPostgres(home, shared_buffers_mb=128, max_connections=240)
    asyncio.run(start_migrated(server))
    yield server
    asyncio.run(server.stop())


@pytest.fixture
def chaos(
    request: pytest.FixtureRequest,
    worker_fleet: Fleet,
    roomy_postgres: EmbeddedPostgres,
    redis_server: str,
    tmp_path: Path,
) -> Chaos:
    """Factory of runs, on shared servers unless the test has its own."""
    return Chaos(worker_fleet, roomy_postgres, redis_server, tmp_path, request.node.nodeid)


@pytest.fixture
async def own_redis(tmp_path: Path) -> AsyncIterator[CrashableRedis]:
    """Server of one test, with an append-only file as in the runbook."""
    server = CrashableRedis(redis_binaries()[-1], tmp_path, fsync="everysec")
    await server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def breakable_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """Migrated server that the tests of a module may kill, if they start it again."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("breakable"), shared_buffers_mb=64)
    asyncio.run(start_migrated(server))
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def stage(
    redis_url: str, breakable_postgres: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Stage]:
    """Stage without documents."""
    async with (
        fresh_database(breakable_postgres) as database,
        headrace(redis_url, database, home=tmp_path, **WORKER) as running,
    ):
        environment = environment_of(redis_url, database, tmp_path)
        yield Stage(
            running,
            Replays(environment | {"HEADRACE_MODEL": HASHING_MODEL}),
            TokenCounter(tokenizer_path(None)),
        )
