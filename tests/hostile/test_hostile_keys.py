"""Redis keys that hold another type than expected."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from events.names import Names, Topic
from events.streams.dead_letters import DeadLetters
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.hostile_worker import Innocents, Suspect, hostile_worker

NAMES = Names()


@pytest.fixture
async def suspect(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[Suspect]:
    async with hostile_worker(redis_url, database, tmp_path / "home", retry_delay="0.1") as worker:
        yield worker


async def test_a_reply_that_can_not_be_added_ends_as_a_dead_letter(suspect: Suspect) -> None:
    """A question whose reply key is not a stream becomes a dead letter."""
    reply_to = NAMES.replies("occupied")
    await suspect.redis.set(reply_to, "not a stream")
    data = {"project": "innocents", "text": "mill", "reply_to": reply_to}
    event = json.dumps({"id": "doomed", "type": "query.requested", "data": data}).encode()
    async with Innocents(suspect.client).at_work():
        entry_id: Any = await suspect.redis.xadd(NAMES.stream(Topic.QUERY), {"event": event})
        await suspect.passed({Topic.QUERY: entry_id.decode()}, timeout=20)
    [(letter, _)] = await suspect.letters()
    assert letter.event == event
    assert await suspect.redis.get(reply_to) == b"not a stream"


async def test_what_is_no_dead_letter_hides_no_other(
    suspect: Suspect, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Malformed dead letters are listed, shown and redriven like others."""
    key = NAMES.dead(Topic.CHANGED_LIVE)
    odd: list[dict[Any, Any]] = [{"a": "b"}, {"event": b"\xff", "attempts": "many", b"\xff": ""}]
    for fields in odd:
        await suspect.redis.xadd(key, fields)
    await suspect.redis.xadd(NAMES.stream(Topic.CHANGED_LIVE), {"event": b"garbage"})
    await suspect.settled()
    dead = DeadLetters(suspect.redis, NAMES)
    letters = await dead.list()
    assert sorted(letter.error for letter in letters) == ["MalformedEvent", "Unknown", "Unknown"]
    assert {letter.id for letter in letters} == {(await dead.show(one.id)).id for one in letters}
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    assert len((await cli("dead", "list", "--json")).objects) == 3
    assert (await cli("dead", "redrive", "--all")).stdout == "redriven: 3\n"
    await suspect.settled()
    assert [letter.error for letter in await dead.list()] == ["MalformedEvent"] * 3
