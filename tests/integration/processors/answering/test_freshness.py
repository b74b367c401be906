"""Questions that wait for a change do not delay others."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic

from redis.asyncio import Redis

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged, QueryAnswer
from events.names import GROUPS, Names, Topic
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.databases import Database
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually, patience

NEVER = "live:0:1-0"
LONGEST_SECONDS = 20.0


async def ask_in_vain(running: Headrace, wait: timedelta) -> QueryAnswer:
    """Ask with ``min_event`` of a change that never comes."""
    client = running.client
    return await client.ask("docs", "weirs", min_event=NEVER, max_wait=wait, timeout=3 * wait)


async def test_waiting_for_a_change_takes_no_place(redis_url: str, database: Database) -> None:
    """Questions that wait for a change leave the only query slot free for others."""
    long = timedelta(seconds=min(patience(4), LONGEST_SECONDS))
    async with headrace(redis_url, database, model=HASHING_MODEL, query_concurrency=1) as running:
        await running.change("a.md", "Weirs hold water.")
        waiting = [asyncio.create_task(ask_in_vain(running, long)) for _ in range(3)]
        began = monotonic()
        answer = await running.client.ask("docs", "weirs")
        assert monotonic() - began < long.total_seconds() / 2
        assert answer.results
        assert not any(task.done() for task in waiting)
        assert all(one.stale for one in await asyncio.gather(*waiting))


async def test_no_number_of_waiting_questions_keeps_others_from_their_answer(
    redis_url: str, database: Database
) -> None:
    """Questions beyond the number of waiting places are answered at once, as stale."""
    long = timedelta(seconds=min(patience(4), LONGEST_SECONDS))
    async with headrace(redis_url, database, model=HASHING_MODEL, query_concurrency=1) as running:
        await running.change("a.md", "Weirs hold water.")
        waiting = [asyncio.create_task(ask_in_vain(running, long)) for _ in range(12)]
        await eventually(
            lambda: sum(task.done() for task in waiting) == 9,
            "nine are answered while three wait",
            timeout=3,
        )
        assert (await running.client.ask("docs", "weirs")).results
        assert sum(task.done() for task in waiting) == 9
        assert all(one.stale for one in await asyncio.gather(*waiting))


async def test_a_worker_that_ends_leaves_waiting_questions_to_another(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """A stopping worker leaves its waiting questions to its successor."""
    stream = Names().stream(Topic.QUERY)
    change = DocumentChange(project="docs", uri="a.md", content="Weirs hold water.")
    async with Client.connect(redis_url) as client:
        async with headrace(redis_url, database, only=["answerer"], model=HASHING_MODEL):
            receipt = await client.publish(DocumentChanged(data=change))
            asked = asyncio.create_task(
                client.ask("docs", "weirs", min_event=receipt.token, max_wait=timedelta(minutes=1))
            )

            async def taken() -> bool:
                return bool((await redis.xpending(stream, GROUPS[Topic.QUERY]))["pending"])

            await eventually(taken, "the question is taken")
            began = monotonic()
        assert monotonic() - began < patience(5)
        assert not asked.done()
        async with headrace(redis_url, database, model=HASHING_MODEL):
            answer = await asked
    assert not answer.stale
    assert answer.results
