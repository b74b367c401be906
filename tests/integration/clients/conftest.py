"""Clients of a gateway beside a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from headrace_client import AsyncHeadrace, AsyncProject, Headrace, Project
from tests.support.gateways import Gateway, deployed, served

__all__ = ["blocking_docs", "deployed", "docs", "key", "served"]


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
