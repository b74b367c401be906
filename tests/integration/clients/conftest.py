"""A gateway beside a worker, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from headrace_client import AsyncHeadrace, AsyncProject, Headrace, Project
from runtime.embedded import EmbeddedPostgres
from tests.support.gateways import Gateway, deployment

_numbers = count(1)


@pytest.fixture(scope="module")
async def deployed(
    redis_server: str,
    postgres_server: EmbeddedPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Gateway]:
    """A gateway whose questions and changes a worker handles."""
    home = tmp_path_factory.mktemp("deployed")
    async with deployment(redis_server, postgres_server, home) as running:
        yield running


@pytest.fixture
def served(deployed: Gateway) -> Gateway:
    """The gateway with a project of this test."""
    deployed.project = f"docs-{next(_numbers)}"
    return deployed


@pytest.fixture
async def docs(served: Gateway) -> AsyncIterator[AsyncProject]:
    """The project by a client with an event loop."""
    async with AsyncHeadrace(served.url, await served.key()) as client:
        yield client.project(served.project)


@pytest.fixture
async def key(served: Gateway) -> str:
    """A key of the project."""
    return await served.key()


@pytest.fixture
def blocking_docs(served: Gateway, key: str) -> Iterator[Project]:
    """The project by a client without an event loop; its methods block."""
    with Headrace(served.url, key) as client:
        yield client.project(served.project)
