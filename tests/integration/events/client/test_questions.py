"""Questions and replies on a real server, with a minimal worker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from events.client import outcomes
from events.client.blocking import BlockingClient
from events.client.client import Client
from events.client.operator_client import OperatorClient
from events.client.outcomes import Outcomes
from events.client.questions import QueryRefused
from events.models import (
    _EXACT_FIELDS,
    DocumentChange,
    DocumentChanged,
    DocumentIndexed,
    DocumentIndexedData,
    Problem,
    QueryAnswer,
    QueryAnswered,
    QueryFailed,
    QueryFailedData,
    QueryFields,
    QueryRequested,
    parse_event,
)
from events.names import GROUPS, Names, Topic
from events.server.connection import connect
from events.streams.replies import Replies
from runtime.errors import MalformedEvent, Unavailable, UsageError
from tests.support.forking import ROOT
from tests.support.streams import read_group
from tests.support.waiting import within

NAMES = Names()
QUERIES = NAMES.stream(Topic.QUERY)
GROUP = GROUPS[Topic.QUERY]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url, blocking=True)
    await client.xgroup_create(QUERIES, GROUP, "0", mkstream=True)
    yield client
    await client.aclose()


def answered(query: QueryRequested) -> QueryAnswered:
    return QueryAnswered(
        data=QueryAnswer(
            query_id=query.id,
            project=query.data.project,
            results=(),
            context=query.data.text[::-1],
            watermark={},
        )
    )


def failed(query: QueryRequested) -> QueryFailed:
    problem = Problem(type="UnknownProject", detail="no project 'q': `headrace sync` it")
    return QueryFailed(data=QueryFailedData(query_id=query.id, problem=problem))


async def next_query(redis: Redis, key: str = QUERIES) -> tuple[str, QueryRequested]:
    [entry] = await read_group(redis, key, GROUP)
    query = parse_event(entry.fields[b"event"])
    assert isinstance(query, QueryRequested)
    return entry.id, query


@asynccontextmanager
async def answerer(redis: Redis, names: Names = NAMES, partition: int = 0) -> AsyncIterator[None]:
    async def answer_all() -> None:
        replies = Replies(redis, names)
        while True:
            entry_id, query = await next_query(redis, names.stream(Topic.QUERY, partition))
            await replies.reply(
                failed(query) if query.data.project == "q" else answered(query),
                query_id=query.id,
                reply_to=query.data.reply_to,
                entry_id=entry_id,
                partition=partition,
            )

    task = asyncio.create_task(answer_all())
    try:
        yield
    finally:
        while not task.done():  # redis-py can swallow a cancellation on Python 3.11
            task.cancel()
            await asyncio.wait([task], timeout=0.1)


async def test_each_of_200_concurrent_questions_gets_its_own_answer(
    redis: Redis, redis_url: str
) -> None:
    async with answerer(redis), Client.connect(redis_url) as client:
        answers = await asyncio.gather(*(client.ask("p", f"question {i}") for i in range(200)))

        assert [a.context for a in answers] == [f"question {i}"[::-1] for i in range(200)]
        assert client._asker.statistics() == {"waiting": 0, "readers": 1}
        assert (await redis.xpending(QUERIES, GROUP))["pending"] == 0


async def test_questions_spread_over_partitions_find_their_replies(
    redis: Redis, redis_url: str
) -> None:
    names = Names(partitions=2)
    await redis.xgroup_create(names.stream(Topic.QUERY, 1), GROUP, "0", mkstream=True)
    async with (
        answerer(redis, names),
        answerer(redis, names, partition=1),
        Client.connect(redis_url, partitions=2) as client,
    ):
        answers = await asyncio.gather(*(client.ask("p", f"question {i}") for i in range(30)))

        assert [a.context for a in answers] == [f"question {i}"[::-1] for i in range(30)]
        assert client._asker.statistics()["readers"] == 2


async def test_a_failed_query_raises_with_its_problem(redis: Redis, redis_url: str) -> None:
    async with answerer(redis), Client.connect(redis_url) as client:
        with pytest.raises(QueryRefused, match="headrace sync") as refusal:
            await client.ask("q", "anything")
    assert refusal.value.code == "UnknownProject"


async def test_silence_ends_at_the_deadline_and_names_the_cure(
    redis: Redis, redis_url: str
) -> None:
    async with Client.connect(redis_url) as client:
        with pytest.raises(Unavailable, match="check that a worker runs"):
            await client.ask("p", "anyone?", timeout=timedelta(milliseconds=50))
        assert client._asker.statistics()["waiting"] == 0


async def test_a_question_out_of_its_limits_is_refused_before_it_is_sent(
    redis: Redis, redis_url: str
) -> None:
    async with Client.connect(redis_url) as client:
        with pytest.raises(UsageError, match=r"query: limit: .*100"):
            await client.ask("p", "x", limit=101)
        with pytest.raises(UsageError, match=r"query: text: .*2000"):
            await client.ask("p", "x" * 2001)
    assert await redis.xlen(QUERIES) == 0


async def test_every_field_of_a_validated_query_is_sent(redis: Redis, redis_url: str) -> None:
    query = QueryFields.model_validate(
        {
            "text": "mill race",
            "limit": 3,
            "mode": "vector",
            "weights": {"vector": 0.9, "keyword": 0.1},
            "filters": {"uri_prefix": "docs/"},
            "min_event": "live:0:1-0",
            "vectors": True,
            "max_wait_ms": 7,
            "explain": True,
            "context_tokens": 64,
            "context_tokenizer": "gpt-4o",
            "min_similarity": 0.25,
            "group": "document",
            "sections": True,
            "diversity": 0.5,
            "operators": True,
            "rerank": True,
            "min_relevance": 0.5,
            "overlay": "feature",
        }
    )
    other_questions = {"like", *_EXACT_FIELDS}
    assert query.model_fields_set == set(QueryFields.model_fields) - other_questions
    async with OperatorClient.connect(redis_url) as client:
        asking = asyncio.create_task(client.ask_query("p", query, agent="ada"))
        _, sent = await next_query(redis)
    with pytest.raises(Unavailable, match="closed"):
        await asking
    assert sent.data.model_dump(include=set(QueryFields.model_fields)) == query.model_dump()
    assert (sent.data.project, sent.data.agent) == ("p", "ada")


async def test_a_lost_connection_is_made_anew(redis: Redis, redis_url: str) -> None:
    async with answerer(redis), Client.connect(redis_url) as client:
        await client.ask("p", "first")
        for connection in await redis.client_list():
            if connection["cmd"] == "xread":
                await redis.client_kill_filter(_id=connection["id"])

        answer = await client.ask("p", "second")

    assert answer.context == "dnoces"


async def test_closing_the_client_ends_its_questions_and_its_stream(
    redis: Redis, redis_url: str
) -> None:
    client = Client.connect(redis_url)
    asking = asyncio.create_task(client.ask("p", "x"))
    entry_id, query = await next_query(redis)
    await client.close()

    with pytest.raises(Unavailable, match="closed"):
        await asking
    await Replies(redis, NAMES).reply(
        answered(query), query_id=query.id, reply_to=query.data.reply_to, entry_id=entry_id
    )
    assert 0 < await redis.pttl(query.data.reply_to) <= 600_000


async def pending_query(redis: Redis, reply_to: str) -> tuple[str, QueryRequested]:
    query = QueryRequested.model_validate(
        {"type": "query.requested", "data": {"project": "p", "text": "x", "reply_to": reply_to}}
    )
    await redis.xadd(QUERIES, {"event": query.to_bytes()})
    return await next_query(redis)


async def test_of_concurrent_replies_one_is_sent(redis: Redis) -> None:
    reply_to = NAMES.replies("me")
    entry_id, query = await pending_query(redis, reply_to)

    firsts = await asyncio.gather(
        *(
            Replies(redis, NAMES).reply(
                answered(query), query_id=query.id, reply_to=reply_to, entry_id=entry_id
            )
            for _ in range(20)
        )
    )

    assert sum(firsts) == 1
    assert await redis.xlen(reply_to) == 1
    assert (await redis.xpending(QUERIES, GROUP))["pending"] == 0


@pytest.mark.parametrize(
    "reply_to",
    [
        "headrace:{document.0}:changed.live",
        "headrace:{query.0}:requested",
        "headrace:{query.0}:replied:x",
        "headrace:{query.0}:replies:",
        "headrace:{query.0}:replies:a:b",
        "headrace:{query.1}:replies:me",
        "other:{query.0}:replies:me",
        "session",
    ],
)
async def test_a_hostile_reply_to_writes_nothing(redis: Redis, reply_to: str) -> None:
    entry_id, query = await pending_query(redis, reply_to)
    before = sorted(await redis.keys())

    with pytest.raises(MalformedEvent, match="reply_to"):
        await Replies(redis, NAMES).reply(
            answered(query), query_id=query.id, reply_to=reply_to, entry_id=entry_id
        )

    assert sorted(await redis.keys()) == before
    assert await redis.xlen(QUERIES) == 1


@pytest.mark.parametrize(
    ("blocked", "error"),
    [
        ("SET {key} occupied", MalformedEvent),
        ("XADD {key} 18446744073709551615-18446744073709551615 a b", ResponseError),
    ],
)
async def test_a_query_whose_reply_can_not_be_added_stays_pending(
    redis: Redis, blocked: str, error: type[Exception]
) -> None:
    """A query stays pending if its reply can't be added, so that no crash can lose it."""
    reply_to = NAMES.replies("me")
    client: Any = redis
    await client.execute_command(*blocked.format(key=reply_to).split())
    entry_id, query = await pending_query(redis, reply_to)
    with pytest.raises(error):
        await Replies(redis, NAMES).reply(
            answered(query), query_id=query.id, reply_to=reply_to, entry_id=entry_id
        )
    assert (await redis.xpending(QUERIES, GROUP))["pending"] == 1


async def test_a_reply_is_sent_also_where_redis_is_full(redis: Redis) -> None:
    """A reply is sent even if Redis has reached its memory limit."""
    reply_to = NAMES.replies("me")
    entry_id, query = await pending_query(redis, reply_to)
    await redis.config_set("maxmemory", 1)
    try:
        assert await Replies(redis, NAMES).reply(
            answered(query), query_id=query.id, reply_to=reply_to, entry_id=entry_id
        )
    finally:
        await redis.config_set("maxmemory", 0)
    assert await redis.xlen(reply_to) == 1
    assert (await redis.xpending(QUERIES, GROUP))["pending"] == 0


def indexed(token: str) -> DocumentIndexed:
    return DocumentIndexed(
        data=DocumentIndexedData(
            event_id="e", token=token, project="p", uri="a", change="upsert", outcome="indexed"
        )
    )


async def test_waiting_returns_the_outcome_of_each_change(redis: Redis, redis_url: str) -> None:
    async with Client.connect(redis_url) as client:
        changes = [
            DocumentChanged(data=DocumentChange(project="p", uri=f"{i}", content=""))
            for i in range(10)
        ]
        receipts = await client.publish_many(changes)
        waiting = asyncio.create_task(client.wait(receipts[:9]))
        await Outcomes(redis, NAMES).publish([indexed(receipt.token) for receipt in receipts])

        known = await waiting

    assert known.keys() == {receipt.token for receipt in receipts[:9]}


async def test_outcomes_are_followed_while_more_is_published(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes of all partitions are followed even if the streams keep only a few."""
    monkeypatch.setattr(outcomes, "_KEEP_OUTCOMES", 50)
    names = Names(partitions=3)
    told = Outcomes(redis, names)
    found: list[str] = []
    async with OperatorClient.connect(redis_url, partitions=3) as client:
        following = client.following()
        tokens: list[str] = []
        for batch in range(30):
            changes = [
                DocumentChanged(data=DocumentChange(project="p", uri=f"{batch}/{i}", content=""))
                for i in range(60)
            ]
            receipts = await client.publish_many(changes)
            await told.publish([indexed(receipt.token) for receipt in receipts])
            await following.add([receipt.token for receipt in receipts])
            tokens += [receipt.token for receipt in receipts]
            while news := await following.read():
                found += [outcome.data.token for outcome in news]
        lengths = [await redis.xlen(names.stream(Topic.OUTCOME, one)) for one in range(3)]
        assert following.waiting == 0
    assert sorted(found) == sorted(tokens)
    assert sum(lengths) < len(tokens), "the streams have forgotten the first ones"


async def test_waiting_for_a_change_that_no_worker_handles_says_so(
    redis: Redis, redis_url: str
) -> None:
    change = DocumentChanged(data=DocumentChange(project="p", uri="a", content=""))
    async with Client.connect(redis_url) as client:
        receipt = await client.publish(change)
        with pytest.raises(Unavailable, match="0 of 1 changes"):
            await client.wait([receipt], timeout=timedelta(milliseconds=50))


async def test_the_blocking_client_publishes_and_asks(redis: Redis, redis_url: str) -> None:
    def use() -> str | None:
        with BlockingClient.connect(redis_url) as client:
            client.publish(DocumentChanged(data=DocumentChange(project="p", uri="a", content="")))
            return client.ask("p", "abc").context

    async with answerer(redis):
        assert await asyncio.to_thread(use) == "cba"
    assert await redis.xlen(NAMES.stream(Topic.CHANGED_LIVE)) == 1


async def test_a_blocking_client_says_why_it_cannot_be_used(redis_url: str) -> None:
    """A blocking client raises UsageError after a fork, because its thread does not exist there."""
    program = (
        "import os, sys\n"
        "from headrace import BlockingClient, UsageError\n"
        "client = BlockingClient.connect(sys.argv[1])\n"
        "def call():\n"
        "    try:\n"
        "        client.wait([])\n"
        "    except UsageError as error:\n"
        "        print(error, flush=True)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    call()\n"
        "    client.close()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "client.close()\n"
        "call()\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, redis_url),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        async with within(30):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    forked, closed = said.decode().splitlines()
    assert "connect in each process" in forked
    assert "is closed" in closed
