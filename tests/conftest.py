"""Real servers for the tests, started once per run and shared.

Fixtures for tests: ``redis_url`` (flushed) and ``database`` (fresh and migrated). The servers
themselves (``postgres_server``, ``redis_server``) live for the whole run and end with it, also when
it is killed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
import structlog
import uvloop

from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from runtime.process_health import settle_heap
from tests.support.databases import (
    Database,
    data_is_copied,
    fresh_database,
    start_migrated,
    sync_writes,
)
from tests.support.forked_parsers import parsers_are_forked
from tests.support.forked_services import services_are_forked
from tests.support.forking import shared_by_run
from tests.support.ordering import long_first
from tests.support.redis_cluster import RedisCluster, redis_cluster
from tests.support.streams import emptied
from tests.support.waiting import patience

_ROOM_BYTES = 4 * 2**30
"""Free memory that the servers of all test processes need at most."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which then leaves all that is loaded alone.

    Modules and tests live until the end, and searching them takes a tenth of the processor time.
    Afterwards it runs as rarely as in a worker.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        settle_heap()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Let the test processes of a run share one fork server and one prepared data directory."""
    shared = ExitStack()
    shared.enter_context(shared_by_run())
    config.add_cleanup(shared.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long tests where several test processes share a run."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        items[:] = long_first(items, processes)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests in the event loop of the program, which takes a fifth less processor time."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Extend the time limit of each test by the current load."""
    limit = patience(settings.timeout)
    pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=limit))
    return True


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the archive of each test apart from those of other tests and of the user."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


@pytest.fixture(autouse=True, scope="session")
def no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust no certificate authority: to read all of them takes 24 ms for each HTTP client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture(autouse=True, scope="session")
def forks() -> Iterator[None]:
    """Fork the parsers of workers in a test's process, and the services that it starts.

    The servers that it starts copy their data directory.
    """
    with parsers_are_forked(), services_are_forked(), data_is_copied():
        yield


@pytest.fixture(autouse=True, scope="session")
def no_cached_loggers() -> Iterator[None]:
    """Let no logger keep the configuration of an earlier test: ``capture_logs`` would miss it."""
    configure = structlog.configure

    def uncached(*arguments: Any, **options: Any) -> None:
        configure(*arguments, **options | {"cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", uncached)
        yield


@pytest.fixture(scope="session")
def servers_home() -> Iterator[Path]:
    """Short path, so that the unix socket fits; in memory, where a database is cloned faster."""
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a private directory in it
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM_BYTES
    home = Path(tempfile.mkdtemp(prefix="hr-", dir=memory if has_room else None))
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def postgres_server(servers_home: Path) -> Iterator[EmbeddedPostgres]:
    """The run's Postgres; prefer ``database``, unless a test needs the server itself."""
    server = EmbeddedPostgres(servers_home, shared_buffers_mb=128)
    asyncio.run(start_migrated(server))
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def database(postgres_server: EmbeddedPostgres) -> AsyncIterator[Database]:
    """Fresh, migrated database with ``owner_url`` and ``worker_url``, dropped after the test."""
    async with fresh_database(postgres_server) as fresh:
        yield fresh


@pytest.fixture
async def synced_writes(postgres_server: EmbeddedPostgres) -> AsyncIterator[None]:
    """Let the run's Postgres sync its writes, which the doctor requires."""
    await sync_writes(postgres_server, on=True)
    yield
    await sync_writes(postgres_server, on=False)


@pytest.fixture(scope="session")
def redis_server(servers_home: Path) -> Iterator[str]:
    """URL of the run's Redis; prefer ``redis_url``, which is empty at the start of a test."""
    server = EmbeddedRedis(servers_home)
    yield asyncio.run(server.start())
    asyncio.run(server.stop())


@pytest.fixture
async def redis_url(redis_server: str) -> str:
    """URL of a real, empty Redis."""
    return await emptied(redis_server)


@pytest.fixture(scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisCluster]:
    """Redis Cluster of six processes, for the tests of a module; they may break it."""
    async with redis_cluster(tmp_path_factory.mktemp("cluster")) as it:
        yield it
