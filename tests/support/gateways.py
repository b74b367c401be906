"""Gateway in the test's own process: real sockets, Redis and Postgres, beside a real worker.

A ``conftest.py`` that imports the fixtures ``deployed`` and ``served`` gives each module a gateway
and a worker that its tests share, and each test a project.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from gateway.app import create_app, open_services
from gateway.auth.callers import Right
from gateway.http.connections import server_config
from gateway.http.services import Services
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.recipes import recipe_of
from runtime.embedded import EmbeddedPostgres
from runtime.settings import Settings
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeyRegister, NewApiKey
from store.postgres.pool import Database as Pool
from tests.support.databases import Database, fresh_database
from tests.support.running import headrace
from tests.support.streams import emptied
from tests.support.waiting import eventually

__all__ = ["ALL_RIGHTS", "Gateway", "deployed", "deployment", "gateway", "served"]

ALL_RIGHTS = frozenset({Right.ASK, Right.READ, Right.PUBLISH})
_projects = count(1)


class Gateway:
    """A running gateway; ``url`` is its address, and ``project`` is the one that tests use."""

    def __init__(self, url: str, services: Services, operator: Pool) -> None:
        self.url = url
        self.services = services
        self.project = "docs"
        self._operator = operator
        self._recipe = recipe_of(services.settings)

    async def key(
        self,
        project: str | None = "",
        *,
        rights: Collection[Right] = ALL_RIGHTS,
        agent: str | None = None,
        **properties: Any,
    ) -> str:
        """Add an API key, and return its text.

        ``project``: empty for that of the tests; None for all.
        """
        key = ApiKey.new()
        project = self.project if project == "" else project
        names = frozenset(right.value for right in rights)
        await ApiKeyRegister(self._operator, Projects(self._operator, self._recipe)).add(
            key, NewApiKey(project, names, agent=agent, **properties)
        )
        return key.text

    @asynccontextmanager
    async def client(
        self, project: str | None = "", **properties: Any
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """Client with a new API key, for a project as ``key``; paths are relative to it."""
        project = self.project if project == "" else project
        key = await self.key(project, **properties)
        path = f"/v1/projects/{project}/" if project else "/"
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(
            base_url=self.url + path, headers=headers, timeout=60
        ) as client:
            yield client


@asynccontextmanager
async def gateway(
    redis_url: str, database: Database, *, operator: bool = False, **settings: Any
) -> AsyncIterator[Gateway]:
    """Run a gateway on a free port of loopback; it ends with the context."""
    values = {"redis_url": redis_url, "database_url": database.operator_url, "model": HASHING_MODEL}
    with _listener() as listener:
        host, port = listener.getsockname()
        async with open_services(Settings(**{**values, **settings}), operator=operator) as services:
            server = _Server(server_config(create_app(services)))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            register = await Pool.open(database.operator_url, max_size=1)
            try:
                await eventually(lambda: server.started, "the gateway listens")
                yield Gateway(f"http://{host}:{port}", services, register)
            finally:
                await register.close()
                server.should_exit = True
                await serving


@asynccontextmanager
async def deployment(
    redis_url: str, server: EmbeddedPostgres, home: Path, **settings: Any
) -> AsyncIterator[Gateway]:
    """Empty the servers, and run a worker and a gateway that tests share.

    Each test then takes a new ``project``. ``settings`` are those of ``gateway``.
    """
    await emptied(redis_url)
    async with (
        fresh_database(server) as database,
        headrace(redis_url, database, home=home),
        gateway(redis_url, database, home=home, **settings) as running,
    ):
        yield running


@pytest.fixture(scope="module")
async def deployed(
    redis_server: str, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    """A gateway beside a worker; no test of the module may use ``redis_url``, which empties it."""
    home = tmp_path_factory.mktemp("deployed")
    async with deployment(redis_server, postgres_server, home) as running:
        yield running


@pytest.fixture
def served(deployed: Gateway) -> Gateway:
    """The gateway of the module, with a project of this test."""
    deployed.project = f"docs-{next(_projects)}"
    return deployed


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener
