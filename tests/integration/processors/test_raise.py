"""Raise of the number of partitions while changes are published."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from events.client.client import Client
from events.client.operator_client import OperatorClient
from events.client.publisher import Receipt
from events.client.republisher import Republishing
from events.deployment import begin_raise, complete_raise, follow_stamp, read_stamp
from events.models import DocumentChange, DocumentChanged
from events.names import LogPosition, Names, Topic
from events.server.connection import Headroom
from events.streams.backlog import read_backlog
from events.streams.trim import trim_changes
from processors.archiving.outbox_relay import OutboxRelay
from processors.deployment import raise_partitions
from runtime.errors import ConfigurationError, EventIdReused
from runtime.settings import Settings
from tests.support.databases import Database
from tests.support.doctors import examine, finding_names, is_archived
from tests.support.durable import Durable
from tests.support.replays import HASHING, replay, rows, tools
from tests.support.running import PATIENCE, headrace
from tests.support.waiting import eventually
from tests.support.writes import opened

NAMES = Names()
URIS = [f"{number}.md" for number in range(12)]


def change(uri: str, content: str) -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project="docs", uri=uri, content=content))


def partitions_of(receipts: Sequence[Receipt]) -> set[int]:
    return {LogPosition.from_token(receipt.token).partition for receipt in receipts}


async def raised(redis_url: str, redis: Redis, database: Database, partitions: int = 16) -> None:
    settings = Settings(redis_url=redis_url, partitions=partitions)
    async with opened(database.operator_url) as operator:
        stamp = await raise_partitions(redis, operator, settings)
    assert (stamp.partitions, stamp.is_raising) == (partitions, False)


async def test_order_and_tokens_survive_a_raise_under_load(
    redis_url: str, redis: Redis, database: Database, tmp_path: Path
) -> None:
    """Each document ends with its last change, once, and everything around it is whole."""
    async with headrace(redis_url, database, model=HASHING, home=tmp_path) as running:
        before = [change(uri, "# First\n") for uri in URIS]
        early = await running.client.publish_many(before)
        done = asyncio.Event()
        late: list[Receipt] = []

        async def edit(client: Client, uris: Sequence[str]) -> int:
            version = 0
            while not done.is_set() or version < 2:
                version += 1
                changes = [change(uri, f"# Version {version} of {uri}\n") for uri in uris]
                late.extend(await client.publish_many(changes))
                await asyncio.sleep(0.5)  # a worker shares the processor with the test
            return version

        async with Client.connect(redis_url) as other:
            edits = [
                asyncio.create_task(edit(running.client, URIS[::2])),
                asyncio.create_task(edit(other, URIS[1::2])),
            ]
            await eventually(lambda: len(late) > 2 * len(URIS), "changes are published")
            await raised(redis_url, redis, database)
            count = len(late)
            await eventually(lambda: len(late) > count + 2 * len(URIS), "more are published")
            done.set()
            versions = await asyncio.gather(*edits)
            assert partitions_of(early) == {0}
            assert len(partitions_of(late)) > 4
            outcomes = await running.client.wait([*early, *late], PATIENCE)
            assert len(outcomes) == len(early) + len(late)
            for receipt, event in zip(early[:2], before[:2], strict=True):
                again = await running.client.publish(event)
                assert (again.duplicate, again.token) == (True, receipt.token)
            reused = before[1].model_copy(update={"data": change(URIS[1], "other").data})
            with pytest.raises(EventIdReused):
                await other.publish(reused)
        answer = await running.client.ask("docs", "Version", limit=5, min_event=early[0].token)
        assert not answer.stale
        assert len(answer.watermark) == 32
        async with tools(redis_url, database, home=tmp_path) as opened_tools:
            await eventually(lambda: is_archived(opened_tools), "everything is archived")
            expected = {
                uri: f"# Version {version} of {uri}"
                for parity, version in enumerate(versions)
                for uri in URIS[parity::2]
            }
            assert await _texts(database) == expected
            assert finding_names(await examine(opened_tools)) == set()
            await replay(opened_tools)
            assert await _texts(database) == expected
            backlog = await read_backlog(redis, opened_tools.names)
            assert {stream.partition for stream in backlog} == set(range(16))
            assert not any(stream.pending or stream.dead_letters for stream in backlog)
            await trim_changes(redis, opened_tools.names, timedelta())


async def test_a_publisher_of_before_is_refused_until_it_follows(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """A client that knows the former number publishes by the new one, and nothing twice."""
    async with headrace(redis_url, database) as running:
        event = change("1.md", "# One\n")
        first = await running.client.publish(event)
        await raised(redis_url, redis, database)
        async with Client.connect(redis_url) as fresh:
            receipts = await fresh.publish_many([change(uri, "# Two\n") for uri in URIS])
            again = await fresh.publish(event)
        assert (again.duplicate, again.token) == (True, first.token)
        late = await running.client.publish_many([change(uri, "# Three\n") for uri in URIS])
        by_uri = zip(receipts, late, strict=True)
        assert all(
            LogPosition.from_token(two.token) < LogPosition.from_token(three.token)
            and partitions_of([two]) == partitions_of([three])
            for two, three in by_uri
        )
        await running.client.wait([first, *receipts, *late], PATIENCE)


async def test_a_process_that_started_before_follows(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """A setting of before the raise is no error, neither later nor at a start."""
    async with (
        headrace(redis_url, database, partitions=1) as running,
        Client.connect(redis_url, partitions=1) as idle,
    ):
        await raised(redis_url, redis, database)
        receipts = await idle.publish_many([change(uri, "# One\n") for uri in URIS])
        assert len(partitions_of(receipts)) > 1
        await running.client.wait(receipts, PATIENCE)
    async with headrace(redis_url, database, partitions=1) as again:
        async with Client.connect(redis_url, partitions=1) as late:
            more = await late.publish_many([change(uri, "# Two\n") for uri in URIS])
        await again.client.wait(more, PATIENCE)
    with pytest.raises(ConfigurationError, match="partitions is 16, but HEADRACE_PARTITIONS is 8"):
        async with headrace(redis_url, database, partitions=8):
            pytest.fail("the deployment never had 8 partitions")


async def test_a_question_keeps_its_partition(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that is on its way during a raise is answered, where its asker reads."""
    async with headrace(redis_url, database) as running, OperatorClient.connect(redis_url) as asker:
        await running.change("1.md", "# One\n", vectors=False)

        async def check_during_raise(_: Headroom) -> None:
            asker.names.partitions = 16

        monkeypatch.setattr(Headroom, "check", check_during_raise)
        for _ in range(3):
            asker.names.partitions = 1
            answer = await asker.ask("docs", "One", mode="keyword", timeout=PATIENCE)
            assert answer.results


async def test_a_raise_that_was_interrupted_is_completed(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """Publishers use the former number until a worker completes the raise; any step can repeat."""
    async with headrace(redis_url, database):
        pass
    stamp = await read_stamp(redis, NAMES)
    assert stamp is not None
    begun = await begin_raise(redis, NAMES, 4, stamp.id)
    assert await begin_raise(redis, NAMES, 4, stamp.id) == begun
    with pytest.raises(ConfigurationError, match="being raised to 4"):
        await begin_raise(redis, NAMES, 8, stamp.id)
    with pytest.raises(ConfigurationError, match="database"):
        await begin_raise(redis, NAMES, 4, "0" * 32)
    async with Client.connect(redis_url) as client:
        early = await client.publish_many([change(uri, "# One\n") for uri in URIS])
        assert partitions_of(early) == {0}
        async with headrace(redis_url, database) as running:
            await running.client.wait(early, PATIENCE)

            async def is_complete() -> bool:
                current = await read_stamp(redis, NAMES)
                return current is not None and not current.is_raising

            await eventually(is_complete, "the worker completes it")
            completed = await read_stamp(redis, NAMES)
            assert completed is not None
            await complete_raise(redis, NAMES, completed)
            with pytest.raises(ConfigurationError, match="can only be raised"):
                await begin_raise(redis, NAMES, 2, stamp.id)
            late = await client.publish_many([change(uri, "# Two\n") for uri in URIS])
            assert partitions_of(late) == {0, 1, 2, 3}
            await client.wait(late, PATIENCE)


async def test_a_stream_ahead_of_the_clock_does_not_break_the_order(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """A later change gets a later position, although its partition has an earlier clock."""
    async with headrace(redis_url, database) as running:
        seconds, _ = await redis.time()
        ahead = f"{(seconds + 600) * 1000}-5"
        stream = NAMES.stream(Topic.CHANGED_LIVE)
        await redis.xadd(stream, {"event": change("1.md", "# Ahead\n").to_bytes()}, id=ahead)
        await raised(redis_url, redis, database)
        uris = [uri for uri in URIS if Names(partitions=16).partition_of("docs", uri)]
        receipts = [await running.client.publish(change(uri, "# Later\n")) for uri in uris]
        await running.client.wait(receipts, PATIENCE)
        first = LogPosition.of_entry(Topic.CHANGED_LIVE.lane, 0, ahead)
        assert all(LogPosition.from_token(receipt.token) > first for receipt in receipts)
    assert (await _texts(database))["1.md"] == "# Later"


async def test_a_durable_event_is_not_republished_where_it_was_kept(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """An event that was kept before a raise is published once, in the partition of its document."""
    async with headrace(redis_url, database, only=["indexer"]) as running:
        uri = next(uri for uri in URIS if Names(partitions=16).partition_of("docs", uri))
        await running.change(uri, "# One\n", vectors=False)
        async with opened(database.worker_url) as worker:
            durable = Durable.at(redis, worker)
            alone = change(uri, "# Three\n")
            await durable.keep(alone)  # its publisher dies before it reaches Redis
            await raised(redis_url, redis, database)
            receipt = await durable.publish(change(uri, "# Two\n"))
            names = Names()
            await follow_stamp(redis, names)
            relay = OutboxRelay(Republishing(redis, names), durable.outbox, age=timedelta())
            assert await relay.run_once() == 1
            assert (await relay.run_once(), (await durable.publish(alone)).duplicate) == (0, True)
    home = names.partition_of("docs", uri)
    assert partitions_of([receipt]) == {home}
    lengths = [await redis.xlen(names.stream(Topic.CHANGED_LIVE, n)) for n in (0, home)]
    assert lengths == [1, 2]


async def _texts(database: Database) -> dict[str, str]:
    """Text of each document of the live generation."""
    query = (
        "select d.uri, string_agg(c.content, '') as text from documents d "
        "join chunks c on c.generation_id = d.generation_id and c.document_id = d.id "
        "where d.generation_id = $1 group by d.uri"
    )
    return {row["uri"]: row["text"].strip() for row in await rows(database, "docs", query)}
