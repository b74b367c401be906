"""Outage of Postgres: changes wait for it, and questions fail in time."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, MutableMapping, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from events.client import questions
from events.client.questions import QueryRefused
from events.names import Lane, Names
from events.server.connection import connect
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from runtime.embedded import EmbeddedPostgres
from runtime.errors import HeadraceError
from tests.chaos.journal import PROJECT, Journal
from tests.chaos.seeds import size
from tests.support.databases import Database
from tests.support.indexes import (
    assert_all_handled,
    assert_equals_oracle,
    assert_nothing_pending,
)
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually, patience

DOCUMENTS = size(300, thorough=600)
LIMIT_TOKENS = 254
WORKER: dict[str, Any] = {
    "model": HASHING_MODEL,
    "batch_documents": 16,
    "retry_delay": timedelta(milliseconds=100),
    "max_deliveries": 3,
}
OUTAGE_RETRIES = 10
ASK_SECONDS = 2.0


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """Migrated server of one test."""
    server = EmbeddedPostgres(tmp_path, shared_buffers_mb=64)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def own_database(own_postgres: EmbeddedPostgres) -> Database:
    """Database of that server."""
    urls = own_postgres.urls()
    return Database("headrace", urls.owner, urls.worker, urls.operator)


async def test_an_import_outlives_a_crash_of_postgres(
    redis_url: str, own_postgres: EmbeddedPostgres, own_database: Database
) -> None:
    """An import survives a kill of Postgres with more retries than attempts, and none is dead."""
    journal = Journal(7)
    redis = connect(redis_url)
    try:
        async with headrace(redis_url, own_database, **WORKER) as running:
            receipts = await running.client.publish_many(journal.changes(DOCUMENTS), Lane.BULK)
            await eventually(
                lambda: _handled_at_least(own_database, 100), "the import runs", every=0.1
            )
            os.kill(own_postgres.pid, signal.SIGKILL)
            with capture_logs() as logs:
                await eventually(
                    lambda: _postponed(logs) >= OUTAGE_RETRIES, "more retries than attempts"
                )
            await own_postgres.stop()
            await own_postgres.start()
            await eventually(
                lambda: _handled_at_least(own_database, DOCUMENTS),
                "all handled",
                timeout=20,
                every=0.1,
            )
            await running.client.wait(receipts)
            await eventually(lambda: _is_idle(redis), "nothing pending", every=0.1)
        owner = await asyncpg.connect(own_database.owner_url)
        count = TokenCounter(tokenizer_path(None))
        await assert_equals_oracle(owner, PROJECT, journal.documents, LIMIT_TOKENS, count)
        await assert_all_handled(owner, receipts)
        await owner.close()
    finally:
        await redis.aclose()


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_question_in_an_outage_fails_by_its_deadline(
    redis_url: str,
    own_postgres: EmbeddedPostgres,
    own_database: Database,
    fault: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question during an outage fails with a retryable problem by its deadline."""
    longest = timedelta(seconds=patience(ASK_SECONDS))
    # a busy machine takes more than the 200 ms that the client leaves to the way of a reply
    monkeypatch.setattr(questions, "_LONGEST_WAY_BACK", longest)
    async with headrace(redis_url, own_database, **WORKER) as running:
        await running.change("a.md", "# Weirs\n\nA weir holds back water.\n")
        await running.client.ask("docs", "what holds back water?")
        victims = await _processes(own_database, own_postgres.pid)
        for pid in victims if fault is signal.SIGSTOP else [own_postgres.pid]:
            os.kill(pid, fault)
        began = monotonic()
        with pytest.raises(QueryRefused) as refused:
            await running.client.ask("docs", "a weir", timeout=longest)
        assert refused.value.problem.retryable
        assert monotonic() - began < longest.total_seconds() + patience(1)
        if fault is signal.SIGSTOP:
            for pid in victims:
                os.kill(pid, signal.SIGCONT)
        else:
            await own_postgres.stop()
            await own_postgres.start()
        await eventually(lambda: _answers(running), "questions are answered again", timeout=20)


def _postponed(logs: Sequence[MutableMapping[str, Any]]) -> int:
    return sum(line["event"] == "batch.postponed" for line in logs)


async def _handled_at_least(database: Database, number: int) -> bool:
    owner = await asyncpg.connect(database.owner_url)
    try:
        return bool(await owner.fetchval("SELECT count(*) >= $1 FROM ledger", number))
    finally:
        await owner.close()


async def _is_idle(redis: Redis) -> bool:
    try:
        await assert_nothing_pending(redis, Names())
    except AssertionError:
        return False
    return True


async def _processes(database: Database, postmaster: int) -> list[int]:
    """Process ids of the server and of its client connections, except the one of this query."""
    owner = await asyncpg.connect(database.owner_url)
    try:
        rows = await owner.fetch(
            "SELECT pid FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    finally:
        await owner.close()
    return [postmaster, *(row["pid"] for row in rows)]


async def _answers(running: Headrace) -> bool:
    try:
        await running.client.ask("docs", "a weir", timeout=timedelta(seconds=patience(ASK_SECONDS)))
    except HeadraceError:
        return False
    return True
