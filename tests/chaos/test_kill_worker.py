"""Kills of a worker at random moments: no change is lost or applied twice.

``HEADRACE_TEST_SEEDS=20`` runs as many seeds; the test's parameter names a failing one.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import asyncpg
import pytest

from events.client.client import Client
from events.client.publisher import Receipt
from events.names import Lane, Names
from events.server.connection import connect
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from tests.chaos.journal import PROJECT, Journal
from tests.chaos.seeds import seeds, size
from tests.support.databases import Database
from tests.support.indexes import (
    assert_all_handled,
    assert_equals_oracle,
    assert_nothing_pending,
)
from tests.support.processes import WorkerProcess
from tests.support.waiting import eventually

DOCUMENTS = size(500, thorough=2_000)
KILLS = 2
SEEDS = seeds()
LIMIT_TOKENS = 254


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_worker_loses_nothing(redis_url: str, database: Database, seed: int) -> None:
    """After kills at random moments of an import, the index equals the fold of the log."""
    rng = random.Random(seed)
    journal = Journal(seed)
    moments = sorted(rng.randrange(DOCUMENTS) for _ in range(KILLS))
    owner = await asyncpg.connect(database.owner_url)
    redis = connect(redis_url)
    try:
        async with Client.connect(redis_url) as client:
            receipts = await client.publish_many(journal.changes(DOCUMENTS), lane=Lane.BULK)
        await _import_under_kills(redis_url, database, owner, moments, receipts)
        count = TokenCounter(tokenizer_path(None))
        await assert_equals_oracle(owner, PROJECT, journal.documents, LIMIT_TOKENS, count)
        await assert_all_handled(owner, receipts)
        await assert_nothing_pending(redis, Names())
    finally:
        await redis.aclose()
        await owner.close()


async def _import_under_kills(
    redis_url: str,
    database: Database,
    owner: asyncpg.Connection,
    moments: Sequence[int],
    receipts: Sequence[Receipt],
) -> None:
    async def handled() -> int:
        return int(await owner.fetchval("SELECT count(*) FROM ledger"))

    def reached(number: int) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return await handled() >= number

        return check

    environment = {"HEADRACE_MODEL": HASHING_MODEL, "HEADRACE_BATCH_DOCUMENTS": "16"}
    for moment in moments:
        async with WorkerProcess(redis_url, database, environment) as worker:
            await eventually(reached(moment), f"{moment} changes handled", timeout=60, every=0.05)
            worker.kill()
    async with WorkerProcess(redis_url, database, environment):
        await eventually(reached(len(receipts)), "all changes handled", timeout=90, every=0.1)
        redis = connect(redis_url)

        async def idle() -> bool:
            try:
                await assert_nothing_pending(redis, Names())
            except AssertionError:
                return False
            return True

        await eventually(idle, "nothing is pending", timeout=20, every=0.1)
        await redis.aclose()
