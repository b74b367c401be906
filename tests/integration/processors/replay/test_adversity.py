"""Replays with damaged rows, redriven changes, and changes that can't be processed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from events.streams.dead_letters import DeadLetters
from processors.replay.replay import Replay
from processors.replay.report import GateScores, ReplayReport
from processors.replay.scope import Choice
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools
from tests.support.databases import Database
from tests.support.replays import (
    HASHING,
    damage,
    damage_at_once,
    notes,
    replay,
    rows,
    struck,
    tools,
)
from tests.support.running import headrace
from tests.support.waiting import eventually

SMALL: dict[str, Any] = {"model": HASHING, "max_document_bytes": 200}
TOO_LONG = "too long " * 30

TEXTS = """
    select c.content from chunks c
    join documents d on d.id = c.document_id and d.generation_id = c.generation_id
    where c.generation_id = $1 and d.uri = $2
"""

DAMAGES = {
    "another text": "update chunks set content = '?'"
    " where generation_id = $1 and content like '%word5%'",
    "no chunk": "delete from chunks where generation_id = $1 and content like '%word5%'",
    "no model": "update chunks set model_id = null"
    " where generation_id = $1 and content like '%word5%'",
    "no vector": "with gone as (delete from vector_cache)"
    " delete from embeddings where generation_id = $1",
}
SHARINGS = [
    "update chunks set agent = '' where generation_id = $1",
    "update embeddings set agent = '' where generation_id = $1",
    "update document_collections set agent = '' where generation_id = $1",
]


async def replay_with(
    opened: OperatorTools, meanwhile: Callable[[], Awaitable[None]]
) -> ReplayReport:
    """Run a replay, and call ``meanwhile`` after the new generation is verified."""

    async def gate(*_: Any) -> GateScores:
        await meanwhile()
        return GateScores(1.0, 1.0, 0.0)

    return await Replay(opened, "docs", Choice(), gate, lambda *_: None).run()


async def publish(redis_url: str, uri: str, content: str, **data: Any) -> None:
    """Publish a change without waiting for a worker."""
    async with Client.connect(redis_url) as client:
        change = DocumentChange(project="docs", uri=uri, content=content, **data)
        await client.publish(DocumentChanged(data=change), Lane.LIVE)


async def texts(database: Database, uri: str) -> list[str]:
    """Contents of the chunks of a live document."""
    return [row["content"] for row in await rows(database, "docs", TEXTS, uri)]


async def test_what_is_damaged_is_not_carried_over(redis_url: str, database: Database) -> None:
    """A document with damaged rows is made from the log instead of being copied."""
    async with headrace(redis_url, database, model=HASHING) as worker:
        await notes(worker)
        await worker.change("main.py", "def main() -> int:\n    return 1\n")
    async with tools(redis_url, database) as opened:
        for kind, statement in DAMAGES.items():
            await damage(database, statement)
            assert (await replay(opened, kind="code")).switched, kind
            (text,) = await texts(database, "notes/5.md")
            assert "word5" in text, kind


async def test_a_change_that_is_redriven_meanwhile_is_caught_up(
    redis_url: str, database: Database
) -> None:
    """A change that is redriven during a replay is in the new generation."""
    async with headrace(redis_url, database, **SMALL) as worker:
        await notes(worker)
        assert (await worker.change("notes/7.md", TOO_LONG)).type == "document.rejected"
    async with tools(redis_url, database) as opened:

        async def redrive() -> None:
            async with headrace(redis_url, database, model=HASHING):
                assert await DeadLetters(opened.redis, opened.names).redrive_all() == 1

                async def is_live() -> bool:
                    return "too long" in "".join(await texts(database, "notes/7.md"))

                await eventually(is_live, "the redriven change is live")

        assert (await replay_with(opened, redrive)).switched
    assert "too long" in "".join(await texts(database, "notes/7.md"))


async def test_what_is_rejected_after_a_replay_took_it_in_still_counts(
    redis_url: str, database: Database
) -> None:
    """A change that a replay indexed and a worker then rejected stays in the next replay."""
    async with headrace(redis_url, database, **SMALL) as worker:
        await notes(worker)
    await publish(redis_url, "notes/7.md", TOO_LONG)
    async with tools(redis_url, database) as opened:
        assert (await replay(opened)).switched
        async with headrace(redis_url, database, **SMALL):
            letters = DeadLetters(opened.redis, opened.names)

            async def is_rejected() -> bool:
                return len(await letters.list()) == 1

            await eventually(is_rejected, "a worker rejects it")
        assert (await replay(opened)).switched
    assert "too long" in "".join(await texts(database, "notes/7.md"))


@pytest.mark.parametrize("change", [{}, {"change": "rename", "old_uri": "notes/7.md"}])
async def test_what_is_live_is_caught_up_whatever_waits_behind_it(
    redis_url: str, database: Database, change: dict[str, str]
) -> None:
    """The last valid change of a document counts, not a later one that can't be processed."""
    async with headrace(redis_url, database, **SMALL) as worker:
        await notes(worker)
    async with tools(redis_url, database, max_document_bytes=200) as opened:

        async def publish_both() -> None:
            async with headrace(redis_url, database, **SMALL) as worker:
                await worker.change("notes/7.md", "# Seven\n\nIt is good.\n")
            await publish(redis_url, "new.md" if change else "notes/7.md", TOO_LONG, **change)

        assert (await replay_with(opened, publish_both)).switched
    assert "It is good." in "".join(await texts(database, "notes/7.md"))


async def test_a_rename_that_can_not_be_processed_takes_nothing_away(
    redis_url: str, database: Database
) -> None:
    """A rename that can't be processed does not delete the old document."""
    async with headrace(redis_url, database, **SMALL) as worker:
        await notes(worker)
    await publish(redis_url, "new.md", TOO_LONG, change="rename", old_uri="notes/7.md")
    async with tools(redis_url, database, max_document_bytes=200) as opened:
        assert (await replay(opened)).switched
    assert await texts(database, "notes/7.md")


@pytest.mark.parametrize("statement", SHARINGS)
async def test_a_row_that_another_agent_would_see_is_found(
    redis_url: str, database: Database, statement: str
) -> None:
    """A private document with a shared row prevents the switch."""
    async with headrace(redis_url, database, model=HASHING) as worker:
        await worker.change("secret.md", "# Secret\n", agent="ada", collections=("own",))
    async with tools(redis_url, database) as opened:
        with (
            struck("replay.verifying", lambda: damage_at_once(database, statement)),
            pytest.raises(NotSwitched) as failed,
        ):
            await replay(opened)
    (difference,) = failed.value.differences
    assert (difference.agent, difference.reason) == ("ada", "its rows are not what was written")


async def test_a_document_that_can_not_be_carried_any_more_is_made_from_the_log(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that changed before it could be copied is made from the log."""
    async with headrace(redis_url, database, **SMALL) as worker:
        await notes(worker)
        await worker.change("main.py", "def main() -> int:\n    return 1\n")
        await worker.change("notes/7.md", TOO_LONG)
    async with tools(redis_url, database) as opened:
        begin = Replay._begin

        async def begin_and_redrive(work: Replay) -> None:
            await begin(work)
            async with headrace(redis_url, database, model=HASHING):
                await DeadLetters(opened.redis, opened.names).redrive_all()

                async def is_live() -> bool:
                    return "too long" in "".join(await texts(database, "notes/7.md"))

                await eventually(is_live, "the redriven change is live")

        monkeypatch.setattr(Replay, "_begin", begin_and_redrive)
        assert (await replay(opened, kind="code")).switched
    assert "too long" in "".join(await texts(database, "notes/7.md"))
