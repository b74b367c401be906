"""A client of a gateway beside a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.support.gateways import Gateway


@pytest.fixture
async def client(served: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with a key of the test's project that may ask, read and publish."""
    async with served.client() as client:
        yield client
