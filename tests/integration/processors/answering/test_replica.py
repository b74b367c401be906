"""Answers from a streaming replica name what it has, and survive what only happens there."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncpg
import pytest
from redis.asyncio import Redis

from events.client.operator_client import OperatorClient
from events.client.questions import QueryRefused
from events.deployment import Stamp
from events.models import QueryAnswer
from events.names import Names
from events.streams.groups import reached, read_watermark
from processors.doctor.checks.postgres_server import replica_conditions
from processors.doctor.findings import Condition, State
from processors.wiring.servers import open_replica
from runtime.embedded import EmbeddedPostgres
from runtime.errors import ConfigurationError, Unavailable
from runtime.settings import Settings
from store.documents.watermarks import (
    ReadWatermark,
    WatermarkNotes,
    note_watermark,
    noted_watermark,
)
from store.postgres.connection import WriteConflict
from store.postgres.pool import Database as OpenDatabase
from store.search.search import Search
from tests.support.databases import TEMPLATE, Database, replica_of
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually, patience
from tests.support.writes import opened

INDEXING = ["indexer", "embedder"]


@pytest.fixture
async def replica(
    postgres_server: EmbeddedPostgres, servers_home: Path
) -> AsyncIterator[EmbeddedPostgres]:
    """Replica of the run's server."""
    home = Path(tempfile.mkdtemp(prefix="replica-", dir=servers_home))
    async with replica_of(postgres_server, home) as server:
        yield server


async def test_an_answer_names_what_its_replica_has(
    redis_url: str, redis: Redis, database: Database, replica: EmbeddedPostgres
) -> None:
    """Watermark and ``stale`` are those of the replica while it is current, paused and down."""
    url = replica.urls(database.name).worker
    assert "no indexer notes" in (await _condition(database, url)).detail
    admin = await asyncpg.connect(replica.urls(database.name).owner)
    async with (
        headrace(redis_url, database, only=INDEXING, read_database_url=url) as indexing,
        headrace(redis_url, database, only=["answerer"], read_database_url=url) as answering,
    ):
        client = answering.client
        first = await _published(indexing, "a.md", "Weirs hold water.")
        answer = await _ask(client, "weirs", min_event=first)
        assert (answer.stale, _uris(answer)) == (False, ["a.md"])
        await eventually(lambda: _names(client, first), "the watermark names the first change")

        await admin.execute("select pg_wal_replay_pause()")
        await eventually(lambda: _is_paused(admin), "the replay is paused")
        second = await _published(indexing, "b.md", "Sluices let water pass.")
        names = Names()
        await eventually(lambda: _has(redis, names, second), "Redis has the second change")
        async with opened(database.worker_url) as primary:
            await eventually(lambda: _has_noted(primary, redis, second), "so has the primary")
        await asyncio.gather(*(_lacks(client, second) for _ in range(3)))
        condition = await _condition(database, url)
        assert condition.state is State.WARNING
        assert "paused" in condition.detail

        await admin.execute("select pg_wal_replay_resume()")
        answer = await _ask(client, "sluices", min_event=second)
        assert (answer.stale, _uris(answer)) == (False, ["b.md"])
        await eventually(lambda: _names(client, second), "the watermark names the second change")
        assert (await _condition(database, url)).state is State.OK

        await _cancelled_reads_are_repeated(client, database, url)

        await admin.close()
        await replica.stop()
        with pytest.raises(QueryRefused, match="Postgres can't be reached"):
            await _ask(client, "weirs")
        assert "can't be reached" in (await _condition(database, url)).detail
        await replica.start()
        assert await eventually(lambda: _answers(client), "it answers again")


async def _cancelled_reads_are_repeated(
    client: OperatorClient, database: Database, url: str
) -> None:
    """A replica cancels reads that disturb its replay; the question is answered all the same."""
    primary = await asyncpg.connect(database.owner_url)
    async with opened(url) as reading:
        cancelled = asyncio.create_task(_sleep(reading))
        await eventually(lambda: _is_asleep(url), "a read takes long")
        async with primary.transaction():
            await primary.execute("lock table documents in access exclusive mode")
            await primary.execute("comment on table documents is 'changed'")
        with pytest.raises(WriteConflict, match="conflict with recovery"):
            await cancelled
    await primary.close()
    live, calls = Search.live, 0

    async def cancelled_once(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise WriteConflict("canceling statement due to conflict with recovery")
        return await live(*arguments, **options)

    with patch.object(Search, "live", cancelled_once):
        assert _uris(await _ask(client, "weirs")) == ["a.md"]
    assert calls == 2


async def test_notes_never_go_back_and_cost_nothing_at_rest(database: Database) -> None:
    """The lower of log and note counts; a note is written only after events were settled."""
    log = {"live:0": "5-0", "bulk:0": "0-0"}
    reads = 0

    async def read() -> dict[str, str]:
        return dict(log)

    async def read_to_note() -> dict[str, str]:
        nonlocal reads
        reads += 1
        return await read()

    async with opened(database.worker_url) as primary:
        assert await noted_watermark(primary, read) == {"live:0": "0-0", "bulk:0": "0-0"}
        await note_watermark(primary, {"live:0": "7-3", "bulk:0": "4-0", "live:1": f"{2**63}-0"})
        await note_watermark(primary, {"live:0": "6-0"})
        assert await noted_watermark(primary, read) == log
        log["live:0"], log["bulk:0"] = "9-0", f"{2**63}-0"
        assert await noted_watermark(primary, read) == {"live:0": "7-3", "bulk:0": "4-0"}

        settled, stop = 0, asyncio.Event()
        notes = WatermarkNotes(primary, read_to_note, lambda: settled)
        noting = asyncio.create_task(notes.run(stop))
        await eventually(lambda: _position(primary, read, "9-0"), "it is noted at the start")
        log["live:0"] = "11-0"
        settled += 1
        await eventually(lambda: _position(primary, read, "11-0"), "it is noted after an event")
        assert reads == 2
        stop.set()
        await noting


async def test_other_servers_are_refused(
    postgres_server: EmbeddedPostgres, database: Database
) -> None:
    """A database of another deployment, and several servers, are refused at the start."""
    stamp = Stamp(id="0" * 32, prefix="headrace", partitions=1)
    for url, message in (
        (database.worker_url, "another deployment"),
        ("postgresql://headrace@one,two/headrace", "several servers"),
        ("postgresql://headrace@/headrace?host=one,two", "several servers"),
        ("postgresql://headrace:1,2@[::/headrace", "not a Postgres URL"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            async with open_replica(Settings(read_database_url=url), stamp):
                pass
    missing = postgres_server.urls(TEMPLATE).worker.replace("%2F", "%2Fmissing", 1)
    with pytest.raises(Unavailable, match="HEADRACE_READ_DATABASE_URL"):
        async with open_replica(Settings(read_database_url=missing), stamp):
            pass
    condition = await _condition(database, database.worker_url)
    assert "takes writes" in condition.detail


async def _published(indexing: Headrace, uri: str, content: str) -> str:
    """Token of a change that is indexed."""
    outcome = await indexing.change(uri, content)
    assert outcome.data.token
    return str(outcome.data.token)


async def _ask(client: OperatorClient, text: str, **options: Any) -> QueryAnswer:
    return await client.ask(
        "docs", text, mode="keyword", timeout=timedelta(seconds=patience(10)), **options
    )


def _uris(answer: QueryAnswer) -> list[str]:
    return [result.citation.uri for result in answer.results]


async def _names(client: OperatorClient, token: str) -> bool:
    return reached((await _ask(client, "weirs")).watermark, token)


async def _lacks(client: OperatorClient, token: str) -> None:
    answer = await _ask(client, "sluices", min_event=token, max_wait=timedelta(milliseconds=200))
    assert (answer.stale, _uris(answer)) == (True, [])
    assert not reached(answer.watermark, token)


async def _is_paused(admin: asyncpg.Connection) -> bool:
    return bool(await admin.fetchval("select pg_get_wal_replay_pause_state()") == "paused")


async def _has(redis: Redis, names: Names, token: str) -> bool:
    return reached(await read_watermark(redis, names), token)


async def _has_noted(primary: OpenDatabase, redis: Redis, token: str) -> bool:
    watermark = await noted_watermark(primary, lambda: read_watermark(redis, Names()))
    return reached(watermark, token)


async def _position(primary: OpenDatabase, read: ReadWatermark, entry_id: str) -> bool:
    return bool((await noted_watermark(primary, read))["live:0"] == entry_id)


async def _answers(client: OperatorClient) -> bool:
    try:
        return bool((await _ask(client, "weirs")).results)
    except QueryRefused:
        return False


async def _sleep(database: OpenDatabase) -> None:
    """Read a table, and keep it locked for long."""
    async with database.scope(1) as connection:
        await connection.execute("select from documents")
        await connection.execute("select pg_sleep(600)")


async def _is_asleep(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return bool(
            await connection.fetchval(
                "select count(*) from pg_stat_activity where query = 'select pg_sleep(600)'"
            )
        )
    finally:
        await connection.close()


async def _condition(database: Database, url: str) -> Condition:
    (condition,) = await replica_conditions(database.owner_url, url)
    return condition
