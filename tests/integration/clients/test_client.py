"""Clients over HTTP against a real gateway and a real worker."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta

import pytest

from gateway.auth.callers import Right
from headrace_client import (
    AsyncHeadrace,
    AsyncProject,
    BatchProgress,
    EventIdReused,
    Filters,
    Forbidden,
    Headrace,
    Lane,
    NotFound,
    Project,
    Unauthenticated,
    UnknownProject,
    UsageError,
)
from tests.support.gateways import Gateway

WAIT = timedelta(seconds=60)
HERONS = "Herons nest in March.\nThey build in tall trees.\n"


async def test_a_change_is_published_found_and_read(docs: AsyncProject) -> None:
    receipt = await docs.upsert(
        "herons.md",
        HERONS,
        title="Herons",
        collections=["birds"],
        metadata={"year": 2024, "seen": True},
    )
    answer = await docs.ask("when do herons nest?", min_event=receipt, timeout=WAIT)
    assert not answer.stale
    assert [str(result.citation) for result in answer] == ["herons.md:1-2"]
    assert (len(answer), answer[0].title) == (1, "Herons")
    assert answer[0].metadata == {"year": 2024, "seen": True}

    document = await docs.document("herons.md")
    assert document.content_hash == hashlib.sha256(HERONS.encode()).hexdigest()
    assert document.token == receipt.token
    text = await docs.text("herons.md")
    assert (text.text, text.content_hash) == (HERONS, document.content_hash)
    part = await docs.text("herons.md", lines=(2, 2))
    assert (part.text.strip(), part.first, part.total) == ("They build in tall trees.", 2, 2)
    assert [chunk.content.strip() async for chunk in docs.chunks("herons.md")] == [HERONS.strip()]
    assert [(item.name, item.documents) for item in await docs.collections()] == [("birds", 1)]
    assert await docs.sources() == ()
    summary = await docs.summary()
    assert (summary.documents, summary.kinds) == (1, {"markdown": 1})


async def test_a_renamed_and_a_deleted_document_leave_their_uris(docs: AsyncProject) -> None:
    created = await docs.upsert("herons.md", HERONS)
    await docs.wait([created], WAIT)
    renamed = await docs.rename("birds.md", "herons.md", HERONS)
    assert (await docs.wait([renamed], WAIT))[renamed.token].state == "indexed"
    assert [document.uri async for document in docs.documents()] == ["birds.md"]
    deleted = await docs.delete("birds.md")
    await docs.wait([deleted], WAIT)
    assert await docs.count_documents() == 0
    with pytest.raises(NotFound) as error:
        await docs.document("birds.md")
    assert error.value.code == "NotFound"
    assert not error.value.retryable
    tokens = [change.token async for change in docs.changes(uri="birds.md")]
    assert tokens == [deleted.token, renamed.token]


async def test_a_rejected_change_says_why(docs: AsyncProject) -> None:
    receipt = await docs.upsert("herons.md", HERONS, expected_hash="0" * 64)
    change = (await docs.wait([receipt], WAIT))[receipt.token]
    assert change.state == "rejected"
    assert change.detail


async def test_an_event_id_is_published_once(docs: AsyncProject) -> None:
    first = await docs.upsert("herons.md", HERONS, event_id="spring")
    again = await docs.upsert("herons.md", HERONS, event_id="spring")
    assert (again.token, again.duplicate) == (first.token, True)
    with pytest.raises(EventIdReused):
        await docs.upsert("herons.md", "Something else.", event_id="spring")


async def test_a_batch_is_published_in_order_and_followed(docs: AsyncProject) -> None:
    """The last change of a document wins, although the changes are in different groups."""
    async with docs.batch("import") as batch:
        for number in range(300):
            await batch.upsert(f"notes/{number % 100:03}.md", f"Note {number}.")
    progress = [state async for state in batch.follow(every=timedelta(seconds=0.05))]
    check_progress(progress, 300)
    assert {receipt.duplicate for receipt in batch.receipts} == {False}
    listed = [document.uri async for document in docs.documents(prefix="notes/")]
    assert listed == [f"notes/{number:03}.md" for number in range(100)]
    assert (await docs.text("notes/007.md")).text == "Note 207."
    assert (await batch.report()).rejected == ()


def check_progress(progress: list[BatchProgress], changes: int) -> None:
    """Check that progress grows, and ends when all changes are handled."""
    handled = [state.handled for state in progress]
    assert handled == sorted(handled)
    assert {state.published for state in progress} == {changes}
    assert (progress[-1].handled, progress[-1].waiting) == (changes, 0)
    assert all(state.waiting for state in progress[:-1])


async def test_a_batch_reports_what_was_rejected(docs: AsyncProject) -> None:
    async with docs.batch() as batch:
        await batch.upsert("good.md", "Good.")
        await batch.upsert("bad.md", "Bad.", expected_hash="0" * 64)
    [*_, last] = [state async for state in batch.follow()]
    assert (last.indexed, last.rejected) == (1, 1)
    assert [change.uri for change in (await batch.report()).rejected] == ["bad.md"]


async def test_a_repeated_import_ends_although_nothing_is_new(docs: AsyncProject) -> None:
    """Its changes were handled in the batch before, so the ledger has none of this batch."""
    for name in ("first", "second"):
        async with docs.batch(name) as batch:
            await batch.upsert("herons.md", HERONS, event_id="herons-1")
        [*_, last] = [state async for state in batch.follow()]
        assert last.waiting == 0
    assert await docs.count_documents() == 1


async def test_an_error_inside_a_batch_publishes_no_more(docs: AsyncProject) -> None:
    batch = docs.batch()

    async def fail() -> None:
        async with batch:
            await batch.upsert("herons.md", HERONS)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert batch.receipts == ()
    marker = await docs.upsert("marker.md", "Marker.")
    await docs.wait([marker], WAIT)
    assert [document.uri async for document in docs.documents()] == ["marker.md"]


async def test_a_malformed_change_of_a_batch_is_raised_at_its_end(docs: AsyncProject) -> None:
    async def publish() -> None:
        async with docs.batch() as batch:
            await batch.upsert("herons.md", HERONS)
            await batch.upsert("herons.md", HERONS, kind="no such kind")

    with pytest.raises(UsageError, match="event 1"):
        await publish()


async def test_the_blocking_client_does_the_same(blocking_docs: Project) -> None:
    def use() -> None:
        docs = blocking_docs
        receipt = docs.upsert("herons.md", HERONS, lane=Lane.BULK)
        assert receipt.token.startswith("bulk:")
        answer = docs.ask("herons", min_event=receipt, mode="keyword", timeout=WAIT)
        assert [str(result.citation) for result in answer] == ["herons.md:1-2"]
        with docs.batch() as batch:
            for number in range(300):
                batch.upsert(f"notes/{number % 100:03}.md", f"Note {number}.")
            batch.delete("herons.md")
        check_progress(list(batch.follow(every=timedelta(seconds=0.05))), 301)
        assert docs.text("notes/007.md").text == "Note 207."
        assert docs.count_documents() == 100
        assert len(list(docs.documents(kind="markdown"))) == 100
        moved = docs.rename("moved.md", "notes/007.md", "Note 207.")
        assert docs.wait([moved], WAIT)[moved.token].state == "indexed"
        with pytest.raises(NotFound):
            docs.document("notes/007.md")
        with pytest.raises(KeyError):
            fail(docs)

    def fail(docs: Project) -> None:
        with docs.batch() as broken:
            broken.upsert("never.md", "Never.")
            raise KeyError

    await asyncio.to_thread(use)


async def test_a_wrong_field_is_named(docs: AsyncProject) -> None:
    await docs.upsert("herons.md", HERONS)
    with pytest.raises(UsageError) as error:
        await docs.ask("herons", limit=1000)
    assert [field["pointer"] for field in error.value.errors] == ["/limit"]
    assert error.value.request_id is not None
    with pytest.raises(UsageError):
        await docs.ask("herons", filters=Filters(kinds=("no such kind",)))


async def test_a_key_decides_what_its_holder_may_do(served: Gateway) -> None:
    reader = await served.key(rights=[Right.READ])
    async with AsyncHeadrace(served.url, reader) as client:
        with pytest.raises(Forbidden):
            await client.project("docs").upsert("herons.md", HERONS)
        with pytest.raises(UnknownProject):
            await client.project("secrets").summary()
    async with AsyncHeadrace(served.url, "hr_00000000_wrong") as client:
        with pytest.raises(Unauthenticated):
            await client.projects()


async def test_an_agent_keeps_private_documents(served: Gateway, docs: AsyncProject) -> None:
    async with AsyncHeadrace(served.url, await served.key(agent="ann")) as client:
        mine = client.project("docs")
        receipt = await mine.upsert("diary.md", HERONS, agent="ann")
        assert len(await mine.ask("herons", min_event=receipt, timeout=WAIT)) == 1
    assert len(await docs.ask("herons", timeout=WAIT)) == 0
    with pytest.raises(Forbidden):
        await docs.upsert("diary.md", HERONS, agent="ann")


async def test_one_client_serves_many_threads(served: Gateway, key: str) -> None:
    with Headrace(served.url, key) as client:
        docs = client.project("docs")
        receipts = await asyncio.gather(
            *(asyncio.to_thread(docs.upsert, f"{number}.md", "Herons.") for number in range(16))
        )
        handled = await asyncio.to_thread(docs.wait, receipts, WAIT)
        assert {change.state for change in handled.values()} == {"indexed"}
        projects = await asyncio.to_thread(client.projects)
        assert [project.project for project in projects] == ["docs"]
