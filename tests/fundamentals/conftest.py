"""One running worker per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.databases import Database
from tests.support.running import Headrace, headrace


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """A worker with the built-in model on real servers."""
    async with headrace(redis_url, database) as it:
        yield it
