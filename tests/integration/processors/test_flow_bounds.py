"""Limits under load: memory, connections, and precedence of questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic

import asyncpg
import pytest
from redis.asyncio import Redis

from events.client.client import Client
from events.client.outcomes import Outcomes
from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged, DocumentIndexed, DocumentIndexedData
from events.names import Lane, Names, Topic
from events.streams.backlog import read_backlog
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.wiring.servers import connections_of, open_servers
from processors.worker import ROLES
from runtime.errors import LogFull
from runtime.settings import Settings
from tests.support.databases import Database
from tests.support.running import PATIENCE, headrace
from tests.support.waiting import eventually, patience

IMPORT = 1500
QUESTIONS = 12


@asynccontextmanager
async def filled(redis: Redis, share: float) -> AsyncIterator[None]:
    """Set a memory limit of which the share is used."""
    await redis.set("ballast", bytes(64 * 2**20))
    used = (await redis.info("memory"))["used_memory"]
    await redis.config_set("maxmemory", int(used / share))
    try:
        yield
    finally:
        await redis.config_set("maxmemory", 0)


def change(uri: str, content: str = "Weirs hold water.") -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project="docs", uri=uri, content=content))


async def connections(redis: Redis) -> int:
    return int((await redis.info("clients"))["connected_clients"])


async def waiting_bulk(redis: Redis) -> bool:
    """True if the import is not finished."""
    streams = await read_backlog(redis, Names())
    return any(
        one.topic is Topic.CHANGED_BULK and one.oldest_unacknowledged is not None for one in streams
    )


async def test_near_the_limit_of_memory_changes_are_refused_first_and_then_questions(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """Changes are refused at 90% of the memory limit, and questions at 95%."""
    async with headrace(redis_url, database, model=HASHING_MODEL) as worker:
        await worker.change("a.md", "Weirs hold water.")
        async with filled(redis, 0.925), Client.connect(redis_url) as client:
            with pytest.raises(LogFull, match="90%"):
                await client.publish(change("b.md"))
            assert (await client.ask("docs", "weirs")).results
        async with filled(redis, 0.98), Client.connect(redis_url) as client:
            with pytest.raises(LogFull, match="95%"):
                await client.ask("docs", "weirs")


async def test_an_import_starves_no_question(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """A worker with both roles answers questions during a large import."""
    async with headrace(redis_url, database, model=HASHING_MODEL) as worker:
        await worker.change("a.md", "Weirs hold water.")
        text = "\n\n".join(f"Paragraph {n} about sluices." for n in range(40))
        changes = [change(f"bulk/{n}.md", f"Import {n}.\n\n{text}") for n in range(IMPORT)]
        receipts = await worker.client.publish_many(changes, Lane.BULK)
        took_seconds = []
        for number in range(QUESTIONS):
            began = monotonic()
            answer = await worker.client.ask("docs", f"what holds water {number}")
            took_seconds.append(monotonic() - began)
            assert answer.results
            # only the vector retriever may be missing, while chunks have no vector yet
            assert answer.degraded == (("vector",) if answer.coverage < 1 else ())
        assert await waiting_bulk(redis), "the import was over before the questions"
        assert sorted(took_seconds)[QUESTIONS // 2] < patience(1.5)
        outcomes = await worker.client.wait(receipts, 2 * PATIENCE + timedelta(seconds=30))
        assert all(isinstance(one, DocumentIndexed) for one in outcomes.values())


async def test_any_number_of_waits_share_a_few_connections(redis_url: str, redis: Redis) -> None:
    """Many waits of one client share a limited number of connections."""
    async with Client.connect(redis_url) as client:
        receipts = await client.publish_many([change(f"{n}.md") for n in range(100)])
        before = await connections(redis)
        waits = [asyncio.create_task(client.wait([one], PATIENCE)) for one in receipts]
        await eventually(lambda: _more(redis, before + 20), "many read")
        assert await connections(redis) <= before + 40
        await Outcomes(redis, Names()).publish([_indexed(one) for one in receipts])
        found = await asyncio.gather(*waits)
    assert [list(one) for one in found] == [[one.token] for one in receipts]


async def _more(redis: Redis, least: int) -> bool:
    return await connections(redis) >= least


def _indexed(receipt: Receipt) -> DocumentIndexed:
    data = DocumentIndexedData(
        event_id=receipt.event_id,
        token=receipt.token,
        project="docs",
        uri="a.md",
        change="upsert",
        outcome="indexed",
    )
    return DocumentIndexed(data=data)


async def test_a_worker_of_one_role_takes_few_connections_to_postgres(
    redis_url: str, database: Database
) -> None:
    """However much it does at once, an indexer has four; all roles have fewer than their sum."""
    assert connections_of(ROLES) < sum(connections_of([role]) for role in ROLES)
    settings = Settings(redis_url=redis_url, database_url=database.worker_url, model=HASHING_MODEL)
    owner = await asyncpg.connect(database.owner_url)
    async with open_servers(settings, connections=connections_of(["indexer"])) as servers:

        async def work() -> None:
            async with servers.database.scope(1) as connection:
                await connection.execute("select pg_sleep(0.02)")

        await asyncio.gather(*(work() for _ in range(20)))
        backends = await owner.fetchval(
            "select count(*) from pg_stat_activity "
            "where datname = $1 and application_name = 'headrace'",
            database.name,
        )
    await owner.close()
    assert backends == 4
