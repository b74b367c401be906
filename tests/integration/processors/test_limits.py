"""Operator's limits: an event beyond one is refused, and accepted once the limit is raised."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from events.client.publisher import Receipt
from events.client.questions import QueryRefused
from events.models import (
    DocumentIndexed,
    DocumentRejected,
    Problem,
    Query,
    QueryFailed,
    QueryRequested,
    parse_event,
)
from events.names import LogPosition, Names, Topic
from events.streams.dead_letters import DeadLetter, DeadLetters
from runtime.settings import EventLimits, Settings
from tests.support.databases import Database
from tests.support.doctors import examine, is_archived
from tests.support.limits import ASKED, CHANGED, LOWERED, Case
from tests.support.replays import HASHING, replay, rows, tools
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.signing import add_key, add_raw, change
from tests.support.streams import read_stream
from tests.support.waiting import eventually

SETTINGS: dict[str, Any] = {"limits": LOWERED, "chunking_limits": {"chunks": 3}}
LONG = "".join(f"# Part {number}\n\n{'The weir holds the water. ' * 60}\n" for number in range(4))
CUT: Case = ("chunks", {"content": LONG}, "chunks, over the limit of 3;")
PARSED: Case = ("event_bytes", {"content": "x" * 8_000}, "bytes, over the limit of 8,000 bytes")
CHANGES = [*CHANGED, CUT, PARSED]
REPLIES = Names().replies("me")
URIS = "select uri from documents where generation_id = $1 and not deleted order by uri"
REJECTED = "select event_id from ledger where outcome = 'rejected' and $1::int > 0"


@pytest.fixture
async def worker(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[Headrace]:
    """Worker with all roles and all limits lowered."""
    async with headrace(redis_url, database, model=HASHING, home=tmp_path, **SETTINGS) as running:
        yield running


def test_no_limit_is_overlooked() -> None:
    """The cases of these tests cover every limit in the settings."""
    ceilings = {name.removeprefix("max_") for name in Settings.model_fields if name[:4] == "max_"}
    tried = {name for name, _, _ in (*CHANGES, *ASKED)}
    assert tried - {"chunks"} == LOWERED.keys() == EventLimits.model_fields.keys()
    assert ceilings == {"document_bytes", "binary_bytes", "deliveries"}


async def test_a_change_over_a_limit_is_a_dead_letter(worker: Headrace, redis: Redis) -> None:
    """A change over a limit is dead-lettered with the limit's name; the next one is indexed."""
    for name, data, told in CHANGES:
        outcome = await worker.change(**{"uri": "a.md", "content": "Text.", **data})
        assert isinstance(outcome, DocumentRejected), name
        _require_reported(outcome.data.problem, name, told)

    async def written() -> list[DeadLetter]:
        letters = await DeadLetters(redis, Names()).list()
        return letters if len(letters) >= len(CHANGES) else []

    letters = await eventually(written, "each change is a dead letter")
    found = [(letter.error, letter.attempts) for letter in letters]
    assert found == [("LimitExceeded", 1)] * len(CHANGES)
    assert isinstance(await worker.change("a.md", "Text."), DocumentIndexed)
    assert await _uris(worker.database) == ["a.md"]


async def test_a_question_over_a_limit_has_failed(worker: Headrace, redis: Redis) -> None:
    """A question over a limit fails with the limit's name; a smaller one is answered."""
    await worker.change("a.md", "Weirs hold water.")
    for name, data, told in ASKED:
        asked = {"timeout": timedelta(seconds=data["timeout"])} if "timeout" in data else data
        with pytest.raises(QueryRefused) as refused:
            await worker.client.ask(**{"project": "docs", "text": "weir", **asked})
        _require_reported(refused.value.problem, name, told)
    assert (await worker.client.ask("docs", "weir")).results
    assert not await DeadLetters(redis, Names()).list()


async def test_a_question_that_is_too_big_an_event_has_failed(
    worker: Headrace, redis: Redis
) -> None:
    """A question with too many bytes gets a reply without being parsed."""
    event = QueryRequested(data=Query(project="docs", text="weir", reply_to=REPLIES)).to_bytes()
    await redis.xadd(Names().stream(Topic.QUERY), {"event": event + b" " * 8_000})

    async def is_answered() -> bool:
        return bool(await redis.xlen(REPLIES))

    await eventually(is_answered, "a reply is there")
    [entry] = await read_stream(redis, REPLIES)
    reply = parse_event(entry.fields[b"event"])
    assert isinstance(reply, QueryFailed)
    _require_reported(reply.data.problem, PARSED[0], PARSED[2])


async def test_what_was_refused_comes_in_once_the_limit_is_raised(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A redrive after a limit was raised indexes refused changes; replays leave them out before.

    The first change of the project is among the refused ones, so nothing else has created it.
    """
    async with headrace(redis_url, database, model=HASHING, home=tmp_path, **SETTINGS) as running:
        outcomes = [
            await running.change("titled.md", "Text.", title="A long title"),
            await running.change("big.md", "x" * 8_000),
            await running.change("small.md", "Text."),
        ]
        assert [type(one).__name__[8:] for one in outcomes] == ["Rejected", "Rejected", "Indexed"]
    assert len(await rows(database, "docs", REJECTED)) == 2
    async with tools(redis_url, database, home=tmp_path) as opened:
        await eventually(lambda: is_archived(opened), "everything is archived")
        archived = {one.event.data.uri async for one in opened.archive.events("docs")}
        assert archived == {"big.md", "small.md", "titled.md"}
        assert (await examine(opened)).is_healthy
        assert (await replay(opened)).switched
        assert await _uris(database) == ["small.md"]
        async with headrace(redis_url, database, model=HASHING, home=tmp_path):
            assert await DeadLetters(redis, Names()).redrive_all() == 2
            await eventually(lambda: _are_in(database), "all are indexed")
        assert (await examine(opened)).is_healthy
        assert (await replay(opened)).switched
    assert await _uris(database) == ["big.md", "small.md", "titled.md"]


async def test_what_came_in_before_a_limit_was_lowered_stays(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A replay ignores the limits, and the document's next change must keep them."""
    async with headrace(redis_url, database, model=HASHING, home=tmp_path) as running:
        await running.change("a.md", "Text.", title="A long title")
    async with tools(redis_url, database, home=tmp_path, **SETTINGS) as opened:
        assert (await replay(opened)).switched
    assert await _uris(database) == ["a.md"]
    async with headrace(redis_url, database, model=HASHING, home=tmp_path, **SETTINGS) as running:
        late = await running.change("a.md", "Late.", title="A long title")
        assert isinstance(late, DocumentRejected)
        assert isinstance(await running.change("a.md", "Later.", title="Title"), DocumentIndexed)


async def test_an_event_refused_before_its_signature_is_read_claims_no_position(
    worker: Headrace, redis: Redis, tmp_path: Path
) -> None:
    """An event that is refused before its signature is read is reported under its own position."""
    key = await add_key(worker.database)
    big = change("big.md", "x" * 8_000).to_bytes()
    malformed = change("a.md").to_bytes().replace(b"a.md", b"")
    place = LogPosition.from_token(await add_raw(redis, big, signature=key.sign(big))).position
    forged = [await add_raw(redis, one, position=str(place)) for one in (big, malformed)]
    receipts = [Receipt(token, "", duplicate=False) for token in forged]
    found = await worker.client.wait(receipts, PATIENCE)
    errors = [one.data.problem.type for one in found.values() if isinstance(one, DocumentRejected)]
    assert sorted(errors) == ["LimitExceeded", "MalformedEvent"]
    async with tools(worker.redis_url, worker.database, home=tmp_path) as opened:
        await eventually(lambda: is_archived(opened), "everything is archived")
        archived = [one.position async for one in opened.archive.events("docs")]
        assert archived == [place]
        assert (await examine(opened)).is_healthy


def _require_reported(problem: Problem, name: str, told: str) -> None:
    assert problem.type == "LimitExceeded"
    assert told in problem.detail
    setting = "HEADRACE_CHUNKING_LIMITS" if name == CUT[0] else "HEADRACE_LIMITS"
    assert problem.detail.endswith(f"raise {name} in {setting}")


async def _uris(database: Database) -> list[str]:
    return [row["uri"] for row in await rows(database, "docs", URIS)]


async def _are_in(database: Database) -> bool:
    return await _uris(database) == ["big.md", "small.md", "titled.md"]
