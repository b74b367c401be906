"""Realignment of a Redis that lost its streams and whose clock is behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from events.models import DocumentChange, DocumentChanged, Origin
from events.names import GROUPS, LARGEST_SEQUENCE, Lane, Names, Topic
from events.server.connection import connect
from events.streams.entries import Entry, entries_of, following
from events.streams.groups import read_groups
from store.generations.catalog import Projects
from store.sources import Sources, source_id_of
from tests.support.databases import Database
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually
from tests.support.writes import RECIPE, opened

HOUR = timedelta(hours=1)
HOUR_OF_POSITIONS = 3_600_000 << 21
SOURCE = source_id_of("docs")


def stream(lane: Lane = Lane.LIVE) -> str:
    return Names().stream(Topic.of_lane(lane))


async def add_behind(redis: Redis, number: int, uri: str, content: str, **data: Any) -> None:
    """Publish with the timestamp of a clock that is an hour behind."""
    change = DocumentChange(project="docs", uri=uri, content=content, **data)
    stamp = int((datetime.now(UTC) - HOUR).timestamp() * 1000)
    event = DocumentChanged(data=change).to_bytes()
    await redis.xadd(stream(), {"event": event}, id=f"{stamp}-{number}")


async def texts_of(worker: Headrace, *words: str) -> list[list[str]]:
    """Contents found by keyword for each word."""
    answers = [await worker.client.ask("docs", word, mode="keyword") for word in words]
    return [[one.content.strip() for one in answer.results] for answer in answers]


async def finds(worker: Headrace, word: str, text: str) -> bool:
    return await texts_of(worker, word) == [[text]]


@pytest.mark.parametrize("idle", [True, False], ids=["all at once", "one after the other"])
async def test_what_redis_stamps_in_the_past_takes_effect_all_the_same(
    redis_url: str, database: Database, redis: Redis, idle: bool
) -> None:
    """Changes with past timestamps take effect in order; the republished ones are logged."""
    async with headrace(redis_url, database) as worker:
        await worker.change("a.md", "heron first")
        await worker.change("b.md", "egret first")
    await redis.flushall()
    with capture_logs() as logs:
        if idle:
            await add_behind(redis, 1, "a.md", "heron second")
            await add_behind(redis, 2, "a.md", "heron third")
            await add_behind(redis, 3, "b.md", "egret second")
        async with headrace(redis_url, database) as worker:
            if not idle:
                await add_behind(redis, 1, "a.md", "heron second")
                await eventually(lambda: finds(worker, "heron", "heron second"), "it is found")
                await worker.change("a.md", "heron third")
                await worker.change("b.md", "egret second")
            await eventually(lambda: finds(worker, "heron", "heron third"), "the last one counts")
            await eventually(lambda: finds(worker, "egret", "egret second"), "and the other one")
            await worker.change("a.md", "heron fourth")
            assert await finds(worker, "heron", "heron fourth")
    moved = [one for one in logs if one["event"] == "stream.advanced"]
    assert [one["republished"] for one in moved] == [3 if idle else 1]


async def test_an_agent_s_change_is_not_older_than_a_sync_before_the_loss(
    redis_url: str, database: Database, redis: Redis
) -> None:
    """An agent's change after the loss wins over a synced one that was indexed before it."""
    async with headrace(redis_url, database) as worker:
        await worker.change("a.md", "heron first")
        ahead = await worker.client.horizon() + HOUR_OF_POSITIONS
        async with opened(database.worker_url) as postgres:
            sources = Sources(postgres, Projects(postgres, RECIPE))
            source = await sources.register("docs", "docs", "docs", "directory", "/docs")
            taken = await sources.take(source, HOUR, ahead)
        await redis.flushall()
        await add_behind(redis, 1, "a.md", "heron synced", origin=taken.origin)
        await eventually(lambda: finds(worker, "heron", "heron synced"), "the sync is found")
        await add_behind(redis, LARGEST_SEQUENCE, "a.md", "heron of an agent")
        await eventually(lambda: finds(worker, "heron", "heron of an agent"), "the agent's is")


async def test_a_late_change_of_a_whole_stream_is_superseded(
    redis_url: str, database: Database
) -> None:
    """A stream that reaches as far as the ledger is not realigned."""
    redis = connect(redis_url)
    async with headrace(redis_url, database) as worker:
        await worker.change("a.md", "heron new")
        entry = (await redis.xinfo_stream(stream()))["last-generated-id"]
        stale = Origin(source=SOURCE, revision=1)
        await worker.change("a.md", "heron stalled", origin=stale, vectors=False)
        assert await finds(worker, "heron", "heron new")
        assert await redis.xlen(stream()) == 2
        assert (await redis.xinfo_stream(stream()))["last-generated-id"] > entry
    await redis.aclose()


async def test_a_lost_end_of_the_log_brings_no_old_change_back(
    redis_url: str, database: Database, redis: Redis
) -> None:
    """After a power loss, changes that survived keep their place before a deletion that is lost."""
    deletion = DocumentChange(project="docs", uri="a.md", change="delete")
    async with headrace(redis_url, database) as worker:
        await worker.change("b.md", "egret first")
        await worker.change("a.md", "heron first")
        waiting = DocumentChange(project="docs", uri="a.md", content="heron second")
        last = (await redis.xinfo_stream(stream()))["last-generated-id"].decode()
        await worker.outcome(await worker.client.publish(deletion))
    survivors = entries_of(await redis.xrange(stream()))[:-1]
    await redis.delete(stream())
    event = DocumentChanged(data=waiting).to_bytes()
    for entry_id, fields in [*survivors, Entry(following(last), {b"event": event})]:
        values: dict[Any, Any] = {**fields}
        await redis.xadd(stream(), values, id=entry_id)
    # the acknowledgement of the second entry was lost, and the third was never delivered
    await redis.xgroup_create(stream(), GROUPS[Topic.CHANGED_LIVE], id=survivors[0].id)
    with capture_logs() as logs:
        async with headrace(redis_url, database) as worker:
            await eventually(lambda: all_acknowledged(redis), "every entry is handled")
            assert await texts_of(worker, "heron", "egret") == [[], ["egret first"]]
            await worker.change("a.md", "heron third")
            assert await finds(worker, "heron", "heron third")
    assert not [line for line in logs if line["event"] == "stream.advanced"]


async def all_acknowledged(redis: Redis) -> bool:
    progress = (await read_groups(redis, stream()))[GROUPS[Topic.CHANGED_LIVE]]
    end: bytes = (await redis.xinfo_stream(stream()))["last-generated-id"]
    return progress.handled == end.decode()
