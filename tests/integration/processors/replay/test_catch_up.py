"""Replays beside a working worker, and changes that can't be processed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from processors.replay.generations import generation_before, switch_to
from processors.replay.verification import NotSwitched
from store.generations.document_positions import DocumentPosition, DocumentPositions
from store.postgres.locks import Lock
from tests.support.databases import Database
from tests.support.replays import HASHING, generation_states, notes, replay, rows, tools
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually, within

CONTENTS = """
    select d.uri, c.content from documents d
    left join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
    where d.generation_id = $1 and not d.deleted and d.uri like 'busy/%'
"""


@asynccontextmanager
async def busy(worker: Headrace) -> AsyncIterator[tuple[dict[str, str], list[int]]]:
    """Publish and ask continuously; acknowledged texts, and generations of the answers."""
    acknowledged: dict[str, str] = {}
    generations: list[int] = []
    stop = asyncio.Event()

    async def change() -> None:
        number = 0
        while not stop.is_set():
            uri, text = f"busy/{number % 7}.md", f"# Busy\n\nRevision {number}."
            await worker.change(uri, text)
            acknowledged[uri] = text
            number += 1

    async def ask() -> None:
        while not stop.is_set():
            answer = await worker.client.ask("docs", "word7 note")
            assert answer.results
            assert not answer.degraded
            generations.append(answer.generation)

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        group.create_task(ask())
        try:
            yield acknowledged, generations
        finally:
            stop.set()


async def test_what_is_acknowledged_during_a_replay_is_in_the_new_generation(
    redis_url: str, database: Database
) -> None:
    """No change is lost and no question fails during three switches and a rollback."""
    async with (
        headrace(redis_url, database, model=HASHING) as worker,
        tools(redis_url, database) as opened,
    ):
        await notes(worker)
        async with busy(worker) as (acknowledged, generations):
            reports = [
                await replay(opened, chunking=chunking) for chunking in ("2:64", "2:32", "2")
            ]
            before = await generation_before(opened, "docs")
            await switch_to(opened, "docs", before, lambda _done, _total: None)
            answered = len(generations)  # one question may be in flight
            await eventually(
                lambda: len(generations) > answered + 1, "a later question is answered"
            )
        stored = {row["uri"]: row["content"] for row in await rows(database, "docs", CONTENTS)}
        assert {uri: text.strip() for uri, text in acknowledged.items()} == {
            uri: text.strip() for uri, text in stored.items()
        }
        assert set(generations) <= {reports[0].former, *(one.generation for one in reports)}
        assert generations[-1] == before.id == reports[1].generation


async def test_a_switch_waits_for_no_writer_for_long(redis_url: str, database: Database) -> None:
    """A switch is postponed while a writer holds the lock, and other writers continue."""
    async with (
        headrace(redis_url, database, model=HASHING) as worker,
        tools(redis_url, database) as opened,
    ):
        await notes(worker)
        holder = await asyncpg.connect(database.owner_url)
        await holder.execute("begin")
        await holder.execute(
            "select pg_advisory_xact_lock_shared($1, id) from projects", Lock.SWITCH
        )
        with capture_logs() as lines:
            work = asyncio.create_task(replay(opened))
            await eventually(
                lambda: any(line["event"] == "switch.postponed" for line in lines),
                "the switch gives up its place for a while",
            )
            async with within(5):
                await worker.change("late.md", "# Late\n")
            assert not work.done()
            await holder.execute("rollback")
            assert (await work).documents == 12
        await holder.close()
    late = "select 1 from documents where generation_id = $1 and uri = 'late.md'"
    assert await rows(database, "docs", late)


async def test_no_writer_waits_for_a_look_at_every_document(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first comparison covers all documents; later ones cover the newer writes."""
    compared: list[int | None] = []
    newer = DocumentPositions.newer

    async def noted(self: DocumentPositions, *args: Any) -> list[DocumentPosition]:
        compared.append(args[2] if len(args) > 2 else None)
        return await newer(self, *args)

    monkeypatch.setattr(DocumentPositions, "newer", noted)
    async with (
        headrace(redis_url, database, model=HASHING) as worker,
        tools(redis_url, database) as opened,
    ):
        await notes(worker)
        assert (await replay(opened)).switched
    first, *later = compared
    assert first is None
    assert None not in later


async def test_a_document_that_the_new_recipe_can_not_process_is_named(
    redis_url: str, database: Database
) -> None:
    """A document that the new recipe can't process prevents the switch and is named."""
    async with (
        headrace(redis_url, database, model=HASHING) as worker,
        tools(redis_url, database, max_document_bytes=200) as opened,
    ):
        await notes(worker)
        await worker.change("long.md", "# Long\n\n" + "many words " * 30)
        with pytest.raises(NotSwitched) as failed:
            await replay(opened)
        (difference,) = failed.value.differences
        assert difference.uri == "long.md"
        assert "can't be processed" in difference.reason
        assert "over the limit of 200" in difference.reason
        assert await generation_states(opened) == ["live", "building"]


async def test_a_change_that_cannot_be_processed_leaves_the_former_version(
    redis_url: str, database: Database
) -> None:
    """A change that can't be processed leaves the former version of its document."""
    async with headrace(redis_url, database, model=HASHING, max_document_bytes=200) as worker:
        await notes(worker)
        refused = await worker.change("notes/7.md", "# Seven\n\n" + "too long " * 30)
        assert refused.type == "document.rejected"
    async with Client.connect(redis_url) as client:
        data = DocumentChange(project="docs", uri="notes/8.md", content="too long " * 30)
        await client.publish(DocumentChanged(data=data), Lane.LIVE)
    async with tools(redis_url, database, max_document_bytes=200) as opened:
        report = await replay(opened)
    assert report.switched
    texts = await rows(
        database,
        "docs",
        "select c.content from chunks c join documents d on d.id = c.document_id"
        " and d.generation_id = c.generation_id where c.generation_id = $1 and d.uri = any ($2)",
        ["notes/7.md", "notes/8.md"],
    )
    assert sorted(row["content"].split()[-1] for row in texts) == ["word7.", "word8."]


async def test_a_change_that_no_worker_has_met_yet_is_in_the_new_generation(
    redis_url: str, database: Database
) -> None:
    """A change that only the replay has indexed is reported as indexed by the worker."""
    async with headrace(redis_url, database, model=HASHING) as worker:
        await notes(worker)
    async with Client.connect(redis_url) as client:
        data = DocumentChange(project="docs", uri="early.md", content="# Early\n")
        receipt = await client.publish(DocumentChanged(data=data), Lane.LIVE)
        async with tools(redis_url, database) as opened:
            assert (await replay(opened)).documents == 13
        async with headrace(redis_url, database, model=HASHING):
            outcome = (await client.wait([receipt]))[receipt.token]
    assert outcome.type == "document.indexed"
    assert outcome.data.outcome == "indexed"
