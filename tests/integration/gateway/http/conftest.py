"""A gateway beside a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.support.databases import Database
from tests.support.gateways import Gateway, gateway
from tests.support.running import headrace


@pytest.fixture
async def served(redis_url: str, database: Database) -> AsyncIterator[Gateway]:
    """A gateway whose questions and changes a worker handles."""
    async with headrace(redis_url, database), gateway(redis_url, database) as running:
        yield running


@pytest.fixture
async def client(served: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with a key of the project ``docs`` that may ask, read and publish."""
    async with served.client() as client:
        yield client
