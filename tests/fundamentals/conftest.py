"""Running worker for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.databases import Database
from tests.support.running import LOCAL_MODEL, Headrace, headrace


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker on real servers, with a fast model."""
    async with headrace(redis_url, database) as it:
        yield it


@pytest.fixture
async def with_model(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker with the built-in model, which embeds by meaning."""
    async with headrace(redis_url, database, model=LOCAL_MODEL) as it:
        yield it
