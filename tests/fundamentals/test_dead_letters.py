"""Nothing vanishes: what can't be processed is kept with the reason, while the rest flows on."""

from __future__ import annotations

import json

import pytest

from events.models import DocumentIndexed, DocumentRejected, content_hash
from events.names import Names, Topic
from events.positions import LogPosition
from events.server.connection import connect
from events.streams.changes import LoggedChange
from events.streams.dead_letters import DeadLetter, DeadLetters
from processors.indexing.documents import ResolvedDocument
from processors.indexing.preparation import Resolver
from runtime.settings import LOCAL_MODEL
from store.generations.catalog import Recipe
from store.store import Store
from tests.support.databases import Database
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually
from tests.support.writes import opened

MISSING = "0" * 64


async def letters(running: Headrace) -> list[DeadLetter]:
    redis = connect(running.redis_url)
    try:
        return await DeadLetters(redis, Names()).list()
    finally:
        await redis.aclose()


async def redrive(running: Headrace, letter: DeadLetter) -> None:
    redis = connect(running.redis_url)
    try:
        await DeadLetters(redis, Names()).redrive(letter.id)
    finally:
        await redis.aclose()


async def test_a_malformed_event_lies_in_the_dead_letters(running: Headrace) -> None:
    """Bytes that are no event are kept as they came, and the next event is indexed."""
    raw = b'{"specversion": "1.0", "type": "document.changed", "data": '
    redis = connect(running.redis_url)
    await redis.xadd(Names().stream(Topic.CHANGED_LIVE), {"event": raw})
    await redis.aclose()
    assert isinstance(await running.change("next.md", "It flows on."), DocumentIndexed)
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert letter.event == raw
    assert letter.error == "MalformedEvent"


async def test_an_entry_without_an_event_is_kept_whole(running: Headrace) -> None:
    """A publisher that mistook the field's name finds what it wrote."""
    redis = connect(running.redis_url)
    await redis.xadd(Names().stream(Topic.CHANGED_LIVE), {"evnt": "{}", "by": "mistake"})
    await redis.aclose()
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert json.loads(letter.event) == {"evnt": "{}", "by": "mistake"}


async def test_a_poison_event_is_refused_with_the_reason(running: Headrace) -> None:
    """A reference to content that nobody stored can't be indexed, now or later."""
    reference = {"sha256": MISSING, "size_bytes": 3}
    outcome = await running.change("lost.md", content_ref=reference)
    assert isinstance(outcome, DocumentRejected)
    assert outcome.data.problem.type == "UnsupportedContent"
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert json.loads(letter.event)["data"]["uri"] == "lost.md"
    assert letter.attempts == 1


async def test_a_raising_event_is_tried_again_then_kept_and_can_be_redriven(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect costs its event five attempts; once it is mended, redriving indexes the event."""
    broken = True
    resolve = Resolver._resolve

    async def raising(self: Resolver, change: LoggedChange) -> ResolvedDocument:
        if broken and change.event.data.uri == "unlucky.md":
            raise ZeroDivisionError("a defect")
        return await resolve(self, change)

    monkeypatch.setattr(Resolver, "_resolve", raising)
    async with headrace(redis_url, database, retry_delay="0.05") as running:
        outcome = await running.change("unlucky.md", "Mended at last.")
        assert isinstance(outcome, DocumentRejected)
        assert outcome.data.attempts == 5
        assert outcome.data.problem.type == "ZeroDivisionError"
        assert isinstance(await running.change("other.md", "It flows on."), DocumentIndexed)
        [letter] = await eventually(lambda: letters(running), "one dead letter")
        broken = False
        await redrive(running, letter)
        answer = await running.client.ask("docs", "mended", min_event=outcome.data.token)
        assert not answer.stale
        assert answer.results[0].citation.uri == "unlucky.md"
        assert await letters(running) == []


async def test_a_redriven_event_never_overwrites_a_newer_one(running: Headrace) -> None:
    """A redrive keeps the event's place in the log, which by then is an old one."""
    older = "The older text."
    reference = {"sha256": content_hash(older), "size_bytes": len(older)}
    await running.change("page.md", content_ref=reference)
    await running.change("page.md", "The newer text.")
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert letter.position is not None
    change = ("docs", LogPosition(letter.position, 0))
    async with opened(running.database.worker_url) as postgres:
        store = Store(postgres, Recipe(LOCAL_MODEL))
        assert not await store.handled([change]), "a rejected change is not applied"
        assert (await store.put("docs", older)).sha256 == reference["sha256"]
        await redrive(running, letter)
        await eventually(lambda: store.handled([change]), "the redriven event is done with")
    answer = await running.client.ask("docs", "text")
    assert [one.content for one in answer.results] == ["The newer text."]
