"""Clients over HTTP against a real gateway and a real worker."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import timedelta

import pytest

from gateway.auth.callers import Right
from headrace_client import (
    AsyncHeadrace,
    AsyncProject,
    BatchProgress,
    DocumentEmbedded,
    DocumentIndexed,
    DocumentRejected,
    EventIdReused,
    Filters,
    Forbidden,
    Headrace,
    Lane,
    NotFound,
    Outcome,
    Outcomes,
    Project,
    QueryAnswer,
    Question,
    Receipt,
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


async def test_a_change_is_found_by_its_event_id(docs: AsyncProject) -> None:
    receipt = await docs.upsert("herons.md", HERONS, event_id="spring")
    change = await docs.change(event_id="spring", wait=timedelta(seconds=30))
    assert change is not None
    assert (change.token, change.state) == (receipt.token, "indexed")
    with pytest.raises(NotFound):
        await docs.change(event_id="summer")


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


async def test_a_document_is_put_and_moved_with_its_outcome(docs: AsyncProject) -> None:
    """The bytes of a file are published as they are; a moved document needs no text."""
    put = await docs.put(
        "héron of the weir.md",
        HERONS.encode(),
        title="Herons",
        media_type="text/markdown",
        collections=["birds", "trees"],
        metadata={"seen": "yes"},
        wait=WAIT,
    )
    assert put.outcome is not None
    assert (put.outcome.outcome, put.outcome.created, put.outcome.chunks_added) == (
        *("indexed", True),
        1,
    )
    moved = await docs.move("birds/herons.md", "héron of the weir.md", wait=WAIT)
    assert moved.outcome is not None
    assert (moved.outcome.change, moved.outcome.tokens_embedded) == ("rename", 0)
    document = await docs.document("birds/herons.md")
    assert (document.title, document.collections) == ("Herons", ("birds", "trees"))
    assert (document.metadata, document.media_type) == ({"seen": "yes"}, "text/markdown")
    assert (await docs.text("birds/herons.md")).text == HERONS
    with pytest.raises(NotFound):
        await docs.move("c.md", "héron of the weir.md")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        await docs.put("scan.md", b"\xff")


async def test_a_put_without_a_wait_has_a_receipt(docs: AsyncProject) -> None:
    put = await docs.put("herons.md", HERONS, event_id="spring", lane=Lane.BULK)
    assert (put.event_id, put.duplicate, put.outcome) == ("spring", False, None)
    assert put.token.startswith("bulk:")
    assert len(await docs.ask("herons", min_event=put, timeout=WAIT)) == 1
    assert (await docs.put("herons.md", HERONS, event_id="spring", lane=Lane.BULK)).duplicate
    with pytest.raises(EventIdReused):
        await docs.put("herons.md", "Something else.", event_id="spring", lane=Lane.BULK)


async def test_a_private_document_is_put_by_its_agent(served: Gateway, docs: AsyncProject) -> None:
    async with AsyncHeadrace(served.url, await served.key(agent="ann")) as client:
        mine = client.project(served.project)
        put = await mine.put("diary.md", HERONS, private=True, wait=WAIT)
        assert put.outcome is not None
        assert put.outcome.agent == "ann"
    assert await docs.count_documents() == 0
    with pytest.raises(UsageError, match="no agent"):
        await docs.put("diary.md", HERONS, private=True)


async def test_questions_are_asked_at_once(docs: AsyncProject) -> None:
    """Each has its own answer or error, in the order of the questions."""
    receipt = await docs.upsert("herons.md", HERONS)
    await docs.upsert("swans.md", "Swans nest in April.\n")
    await docs.wait([receipt], WAIT)
    contradictory = Question(text="herons", mode="keyword", min_similarity=0.5)
    first, second, failed = await docs.ask_many(
        ["when do herons nest?", Question(text="trees", limit=1, mode="keyword"), contradictory]
    )
    assert isinstance(first, QueryAnswer)
    assert "herons.md" in [result.citation.uri for result in first]
    assert isinstance(second, QueryAnswer)
    assert [str(result.citation) for result in second] == ["herons.md:1-2"]
    assert isinstance(failed, UsageError)
    assert failed.request_id
    judged = await docs.judge(first.query_id, first[0].chunk_id, "used", event_id="swim")
    assert judged.event_id == "swim"
    with pytest.raises(UsageError):
        await docs.judge(first.query_id, first[0].chunk_id, "used", rank=0)
    with pytest.raises(UsageError):
        await docs.ask_many([])
    with pytest.raises(UsageError):
        await docs.ask_many(["herons"] * 17)


async def test_the_outcomes_of_changes_follow(served: Gateway, docs: AsyncProject) -> None:
    """Every change after the beginning of the context; later ones by the position."""
    async with AsyncHeadrace(served.url, await served.key()) as other:
        async with docs.follow(prefix="birds/") as outcomes:
            assert outcomes.position is not None
            await docs.upsert("notes.md", "A note.")
            theirs = other.project(served.project)
            receipt = await theirs.upsert("birds/herons.md", HERONS, lane=Lane.BULK)
            indexed = await anext(outcomes)
            position = outcomes.position
            await docs.upsert("birds/swans.md", HERONS, expected_hash="0" * 64)
            following = [await anext(outcomes) for _ in range(2)]
        assert isinstance(indexed, DocumentIndexed)
        assert (indexed.token, indexed.uri) == (receipt.token, "birds/herons.md")
        embedded, rejected = sorted(following, key=lambda outcome: outcome.uri or "")
        assert isinstance(embedded, DocumentEmbedded)
        assert (embedded.uri, embedded.chunks_embedded) == ("birds/herons.md", 1)
        assert isinstance(rejected, DocumentRejected)
        assert rejected.problem.type == "PreconditionFailed"
        async with docs.follow(prefix="birds/", after=position) as outcomes:
            assert [await anext(outcomes) for _ in range(2)] == following
        with pytest.raises(UsageError, match="Last-Event-ID"):
            async with docs.follow(after="yesterday"):
                pass
        with pytest.raises(UnknownProject):
            async with other.project("secrets").follow():
                pass


async def test_outcomes_follow_after_a_wait_that_was_given_up(docs: AsyncProject) -> None:
    """A time limit on one outcome does not end the stream; nothing is lost or repeated."""
    async with docs.follow() as outcomes:
        for uri in ("herons.md", "swans.md"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(outcomes), 0.05)
            receipt = await docs.upsert(uri, HERONS, expected_hash="0" * 64)
            await docs.wait([receipt], WAIT)
            outcome = await anext(outcomes)
            assert (outcome.uri, outcome.token) == (uri, receipt.token)


async def test_the_outcomes_of_a_batch_follow(docs: AsyncProject) -> None:
    async with docs.follow(batch="import") as outcomes:
        await docs.upsert("of-no-batch.md", HERONS)
        async with docs.batch("import") as batch:
            for number in range(20):
                await batch.upsert(f"{number:02}.md", HERONS)
        indexed: list[str] = []
        while len(indexed) < 20:
            outcome = await anext(outcomes)
            if isinstance(outcome, DocumentIndexed):
                indexed.append(outcome.uri)
    assert sorted(indexed) == [f"{number:02}.md" for number in range(20)]


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
        with docs.follow(prefix="put/") as outcomes:
            put = docs.put("put/a.md", HERONS, wait=WAIT)
            assert put.outcome is not None
            assert next(outcomes).token == put.token
        renamed = docs.move("put/b.md", "put/a.md", wait=WAIT)
        assert renamed.outcome is not None
        after = [outcome.token for outcome in take(docs.follow(after=outcomes.position), renamed)]
        assert after[-1] == renamed.token
        assert isinstance(docs.ask_many(["herons"])[0], QueryAnswer)
        with pytest.raises(KeyError):
            fail(docs)

    def take(outcomes: Outcomes, last: Receipt) -> Iterator[Outcome]:
        with outcomes:
            for outcome in outcomes:
                yield outcome
                if outcome.token == last.token:
                    return

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
            await client.project(served.project).upsert("herons.md", HERONS)
        with pytest.raises(UnknownProject):
            await client.project("secrets").summary()
    async with AsyncHeadrace(served.url, "hr_00000000_wrong") as client:
        with pytest.raises(Unauthenticated):
            await client.projects()


async def test_an_agent_keeps_private_documents(served: Gateway, docs: AsyncProject) -> None:
    async with AsyncHeadrace(served.url, await served.key(agent="ann")) as client:
        mine = client.project(served.project)
        receipt = await mine.upsert("diary.md", HERONS, agent="ann")
        assert len(await mine.ask("herons", min_event=receipt, timeout=WAIT)) == 1
    assert len(await docs.ask("herons", timeout=WAIT)) == 0
    with pytest.raises(Forbidden):
        await docs.upsert("diary.md", HERONS, agent="ann")


async def test_one_client_serves_many_threads(served: Gateway, key: str) -> None:
    with Headrace(served.url, key) as client:
        docs = client.project(served.project)
        receipts = await asyncio.gather(
            *(asyncio.to_thread(docs.upsert, f"{number}.md", "Herons.") for number in range(16))
        )
        handled = await asyncio.to_thread(docs.wait, receipts, WAIT)
        assert {change.state for change in handled.values()} == {"indexed"}
        projects = await asyncio.to_thread(client.projects)
        assert [project.project for project in projects] == [served.project]
