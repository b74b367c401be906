"""Index with thirteen archived documents that the tests of doctors and replays begin with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from runtime.embedded import EmbeddedPostgres
from tests.support.databases import Database, fresh_database
from tests.support.doctors import Indexed


@pytest.fixture(scope="session")
def indexed(
    postgres_server: EmbeddedPostgres, redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Indexed:
    """The index, made by the first test that needs it."""
    home = tmp_path_factory.mktemp("indexed")
    return asyncio.run(Indexed.make(postgres_server, redis_server, home))


@pytest.fixture
async def indexed_database(
    postgres_server: EmbeddedPostgres, indexed: Indexed
) -> AsyncIterator[Database]:
    """Copy of its database, dropped after the test."""
    async with fresh_database(postgres_server, indexed.template) as copy:
        yield copy
