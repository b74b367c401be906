"""Recovery of durable changes after a loss of Redis: workers index them in their order."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from redis.asyncio import Redis

from events.client.client import Client
from events.client.publisher import Receipt
from events.models import DocumentIndexed, QueryAnswer
from events.names import Lane, LogPosition
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database as FreshDatabase
from tests.support.durable import PROJECT, Durable, change
from tests.support.running import PATIENCE, headrace
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[4]


async def found(client: Client, receipt: Receipt, text: str) -> QueryAnswer:
    """Answer that reflects the receipt's change."""
    answer = await client.ask(
        PROJECT, text, mode="keyword", min_event=receipt.token, max_wait=timedelta(seconds=10)
    )
    assert not answer.stale
    return answer


def cited(answer: QueryAnswer) -> set[str]:
    """Uris that the answer cites."""
    return {result.citation.uri for result in answer.results}


async def lose_and_republish(durable: Durable, expected: int) -> None:
    """Flush Redis and republish what the outbox has."""
    await durable.redis.flushall()
    assert await durable.republish() == expected


async def _next_millisecond(redis: Redis) -> None:
    """Wait for it: changes of different lanes have no order within one."""
    begun = await _milliseconds(redis)
    while await _milliseconds(redis) == begun:
        pass


async def _milliseconds(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def test_changes_that_no_worker_had_seen_are_indexed_in_their_order(
    durable: Durable, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """Republished changes take effect in their original order, and their tokens stay valid."""
    versions = [change("plan.md", f"The plan of the {name}.") for name in "abcdefgh"]
    receipts: list[Receipt] = []
    for number, version in enumerate(versions):
        receipts.append(await durable.publish(version, list(Lane)[number % 2]))
        await _next_millisecond(durable.redis)
    await lose_and_republish(durable, len(versions))

    async with headrace(redis_url, database, archive_url=str(tmp_path / "archive")) as running:
        outcomes = await running.client.wait(receipts, PATIENCE)
        last = outcomes[receipts[-1].token]
        assert isinstance(last, DocumentIndexed)
        assert last.data.outcome == "indexed"
        for receipt in receipts:
            answer = await found(running.client, receipt, "plan")
            assert [result.content for result in answer.results] == ["The plan of the h."]
        await eventually(lambda: _is_empty(durable), "the archive has all of it")


async def test_deletions_and_renames_come_back_too(
    durable: Durable, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """Republished deletes and renames take effect."""
    await durable.publish(change("gone.md", "Gone with the wind."))
    await durable.publish(change("old.md", "Moved by the wind."))
    deleted = await durable.publish(change("gone.md", None, change="delete"))
    renamed = await durable.publish(
        change("new.md", "Moved by the wind.", change="rename", old_uri="old.md")
    )
    await lose_and_republish(durable, 4)
    async with headrace(redis_url, database, archive_url=str(tmp_path / "archive")) as running:
        await found(running.client, deleted, "wind")
        assert cited(await found(running.client, renamed, "wind")) == {"new.md"}


async def test_a_change_made_after_the_loss_stands(
    durable: Durable, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """A change published after the loss wins over an older one that is republished later."""
    before = await durable.publish(change("plan.md", "The plan of yesterday."))
    await durable.redis.flushall()
    after = await durable.publish(change("plan.md", "The plan of today."))
    assert await durable.republish() == 1
    async with headrace(redis_url, database, archive_url=str(tmp_path / "archive")) as running:
        for receipt in (after, before):
            answer = await found(running.client, receipt, "plan")
            assert [result.content for result in answer.results] == ["The plan of today."]


async def test_what_was_indexed_but_not_archived_is_not_indexed_again(
    durable: Durable, redis_url: str, database: FreshDatabase
) -> None:
    """A change that is already in the ledger is republished and reported as a duplicate."""
    async with headrace(redis_url, database, only=["indexer"]) as running:
        event = change()
        receipt = await durable.publish(event)
        await running.client.wait([receipt], PATIENCE)
    await lose_and_republish(durable, 1)
    async with headrace(redis_url, database, only=["indexer"]) as running:
        outcome = (await running.client.wait([receipt], PATIENCE))[receipt.token]
        assert isinstance(outcome, DocumentIndexed)
        assert outcome.data.outcome == "duplicate"


async def test_the_worker_brings_back_what_is_lost_by_itself(
    durable: Durable, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """A worker publishes events that a killed publisher left in the outbox."""
    event = change("kept.md", "Kept in time.")
    await durable.keep(event)
    await durable.execute("update outbox set created_at = created_at - interval '1 minute'")
    async with headrace(redis_url, database, archive_url=str(tmp_path / "archive")) as running:
        await eventually(lambda: _is_empty(durable), "the archive has it", timeout=20)
        receipt = await durable.publisher.publish(event)
        assert receipt.duplicate
        assert cited(await found(running.client, receipt, "kept")) == {"kept.md"}


async def test_a_killed_publisher_loses_nothing_that_it_had_kept(
    durable: Durable, redis: Redis, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """A publisher killed while writes are paused has published each event once, in order."""
    events = [change("a.md", f"version {number}") for number in range(20)]
    environment = environment_of(redis_url, database, tmp_path / "home")
    await redis.client_pause(60_000, all=False)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", "publish", "--durable"),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"".join(event.to_bytes() + b"\n" for event in events))
    process.stdin.close()
    try:
        event_ids = [event.id for event in events]
        await eventually(lambda: _is_kept(durable, event_ids), "all are kept", timeout=30)
    finally:
        process.kill()
        await process.wait()
        await eventually(lambda: _none_is_blocked(redis), "Redis has seen the publisher's end")
        await redis.client_unpause()
    await durable.republish()
    logged = await durable.log()
    assert [one.event.id for one in sorted(logged, key=lambda one: one.log_position)] == event_ids


async def test_the_command_publishes_durably(
    durable: Durable, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """The command prints the token that the outbox has recorded."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    event = change()
    result = await cli("publish", "--durable", stdin=event.to_bytes() + b"\n")
    assert result.code == 0, result.stderr
    position = LogPosition.from_token(result.stdout.strip()).position
    assert (await durable.rows())[event.id]["position"] == position


async def test_publishing_durably_needs_a_database(
    redis: Redis, redis_url: str, database: FreshDatabase, tmp_path: Path
) -> None:
    """The error names the missing setting, and nothing is published."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    event = change().to_bytes() + b"\n"
    line = (await cli("publish", "--durable", stdin=event, HEADRACE_DATABASE_URL="")).line
    assert "--durable" in line
    assert "HEADRACE_DATABASE_URL" in line
    assert not await redis.keys("*")


async def _none_is_blocked(redis: Redis) -> bool:
    """True if no client is blocked; a blocked command would run after the pause."""
    return not any("b" in client["flags"] for client in await redis.client_list())


async def _is_empty(durable: Durable) -> bool:
    return not await durable.rows()


async def _is_kept(durable: Durable, event_ids: Sequence[str]) -> bool:
    return (await durable.rows()).keys() == set(event_ids)
