"""Dead letters: a failed event is kept with its reason, and the others are processed."""

from __future__ import annotations

import json

import pytest

from headrace import DocumentIndexed, DocumentRejected
from tests.support.changes import reference_to
from tests.support.databases import Database
from tests.support.dead_letters import (
    Defect,
    add_entry,
    is_handled,
    keep_content,
    letters,
    redrive,
)
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually


async def test_a_malformed_event_lies_in_the_dead_letters(running: Headrace) -> None:
    """A malformed event is kept unchanged, and the next event is indexed."""
    raw = b'{"specversion": "1.0", "type": "document.changed", "data": '
    await add_entry(running, {"event": raw})
    assert isinstance(await running.change("next.md", "It flows on."), DocumentIndexed)
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert letter.event == raw
    assert letter.error == "MalformedEvent"


async def test_an_entry_without_an_event_is_kept_whole(running: Headrace) -> None:
    """An entry without the field ``event`` is kept with all its fields."""
    await add_entry(running, {"evnt": "{}", "by": "mistake"})
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert json.loads(letter.event) == {"evnt": "{}", "by": "mistake"}


async def test_a_poison_event_is_refused_with_the_reason(running: Headrace) -> None:
    """A reference to content that is not stored is rejected at the first attempt."""
    outcome = await running.change("lost.md", content_ref=reference_to("Lost."))
    assert isinstance(outcome, DocumentRejected)
    assert outcome.data.problem.type == "UnsupportedContent"
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert json.loads(letter.event)["data"]["uri"] == "lost.md"
    assert letter.attempts == 1


async def test_a_raising_event_is_tried_again_then_kept_and_can_be_redriven(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that raises is dead-lettered after five attempts; it can be redriven after a fix."""
    defect = Defect(monkeypatch, "unlucky.md")
    async with headrace(redis_url, database, retry_delay="0.05") as running:
        outcome = await running.change("unlucky.md", "Mended at last.")
        assert isinstance(outcome, DocumentRejected)
        assert outcome.data.attempts == 5
        assert outcome.data.problem.type == "ZeroDivisionError"
        assert isinstance(await running.change("other.md", "It flows on."), DocumentIndexed)
        [letter] = await eventually(lambda: letters(running), "one dead letter")
        defect.repair()
        await redrive(running, letter)
        answer = await running.client.ask("docs", "mended", min_event=outcome.data.token)
        assert not answer.stale
        assert answer.results[0].citation.uri == "unlucky.md"
        assert await letters(running) == []


async def test_a_redriven_event_never_overwrites_a_newer_one(running: Headrace) -> None:
    """A redriven event keeps its original position, so it doesn't replace newer text."""
    older = "The older text."
    await running.change("page.md", content_ref=reference_to(older))
    await running.change("page.md", "The newer text.")
    [letter] = await eventually(lambda: letters(running), "one dead letter")
    assert not await is_handled(running, "docs", letter), "a rejected change is not applied"
    await keep_content(running, "docs", older)
    await redrive(running, letter)
    await eventually(lambda: is_handled(running, "docs", letter), "the redriven event is done with")
    answer = await running.client.ask("docs", "text")
    assert [one.content for one in answer.results] == ["The newer text."]
