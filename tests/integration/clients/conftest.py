"""A gateway beside a worker, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from headrace_client import AsyncHeadrace, AsyncProject, Headrace, Project
from tests.support.databases import Database
from tests.support.gateways import Gateway, gateway
from tests.support.running import headrace


@pytest.fixture
async def served(redis_url: str, database: Database) -> AsyncIterator[Gateway]:
    """A gateway whose questions and changes a worker handles."""
    async with headrace(redis_url, database), gateway(redis_url, database) as running:
        yield running


@pytest.fixture
async def docs(served: Gateway) -> AsyncIterator[AsyncProject]:
    """The project ``docs`` by a client with an event loop."""
    async with AsyncHeadrace(served.url, await served.key()) as client:
        yield client.project("docs")


@pytest.fixture
async def key(served: Gateway) -> str:
    """A key of the project ``docs``."""
    return await served.key()


@pytest.fixture
def blocking_docs(served: Gateway, key: str) -> Iterator[Project]:
    """The project ``docs`` by a client without an event loop; its methods block."""
    with Headrace(served.url, key) as client:
        yield client.project("docs")
