"""Lists of documents, chunks, lines, sources and changes, read as an answerer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from events.models import Problem, content_hash
from events.names import LogPosition
from runtime.errors import NotFound, UnknownProject, UsageError
from store.postgres.pool import EVERY_AGENT
from store.store import Store
from store.views.batches import SkippedFiles
from store.views.listing import ChangeRow, DocumentRow, Listing, cursor_of
from tests.support.databases import Database as FreshDatabase
from tests.support.writes import chunk_write, document_write, opened

PROJECT = "alpha"


@pytest.fixture
async def listing(database: FreshDatabase) -> AsyncIterator[Listing]:
    """Lists as an answerer reads them."""
    url = database.worker_url.replace("headrace_worker@", "headrace_answerer@")
    async with opened(url) as answerer:
        yield Listing(answerer)


async def pages(listing: Listing, agent: str | None, limit: int, **filters: Any) -> list[str]:
    """Every document of a list as ``uri`` or ``agent:uri``, read page by page."""
    names: list[str] = []
    after = None
    while True:
        page = await listing.documents(PROJECT, agent, after=after, limit=limit, **filters)
        names += [name_of(row) for row in page]
        if len(page) < limit:
            return names
        after = page[-1].cursor


def name_of(row: DocumentRow) -> str:
    return row.uri if row.agent is None else f"{row.agent}:{row.uri}"


async def write(store: Store, *uris: str, **fields: Any) -> None:
    start = fields.pop("start", 10)
    await store.apply(
        [
            document_write(uri, position, [f"text of {uri}"], **fields)
            for position, uri in enumerate(uris, start)
        ]
    )


async def test_pages_of_documents_are_complete_and_in_order(listing: Listing, store: Store) -> None:
    """Pages of any size have every document once, by uri, a shared one before a private one."""
    await write(store, "b", "a", "a/b", "ab", "ä", "\U0001f600")
    await write(store, "a", "c", agent="ann", start=30)
    await write(store, "a", "d", agent="bob", start=40)
    expected = ["a", "ann:a", "a/b", "ab", "b", "ann:c", "ä", "\U0001f600"]
    for limit in range(1, 10):
        assert await pages(listing, "ann", limit) == expected
    assert await pages(listing, None, 3) == ["a", "a/b", "ab", "b", "ä", "\U0001f600"]
    assert await listing.count_documents(PROJECT, "ann") == len(expected)
    every = await pages(listing, EVERY_AGENT, 2)
    assert every == ["a", "ann:a", "bob:a", "a/b", "ab", "b", "ann:c", "bob:d", "ä", "\U0001f600"]


async def test_pages_stay_complete_while_documents_change(listing: Listing, store: Store) -> None:
    """Between two pages documents are added, deleted and changed; the others are listed once."""
    await write(store, *(f"doc-{number:02}" for number in range(20)))
    first = await listing.documents(PROJECT, None, limit=8)
    await store.apply(
        [
            document_write("doc-00", 100, change="delete", chunks=()),
            document_write("doc-00a", 101, ["new, before the page"]),
            document_write("doc-09a", 102, ["new, after the page"]),
            document_write("doc-07", 103, change="delete", chunks=()),
            document_write("doc-12", 104, ["changed"]),
        ]
    )
    rest = await listing.documents(PROJECT, None, after=first[-1].cursor)
    names = [row.uri for row in (*first, *rest)]
    assert names == sorted([*(f"doc-{number:02}" for number in range(20)), "doc-09a"])


async def test_a_prefix_chooses_deleted_documents_only_on_demand(
    listing: Listing, store: Store
) -> None:
    """Names choose deleted documents always."""
    await write(store, "a/1", "a/2", "b")
    await store.apply([document_write("a/2", 100, change="delete", chunks=())])
    assert await listing.stored_uris(PROJECT, None, prefix="a/", deleted_too=False) == ["a/1"]
    assert await listing.stored_uris(PROJECT, None, prefix="a/") == ["a/1", "a/2"]
    named = await listing.stored_uris(PROJECT, None, uris=["a/2"], deleted_too=False)
    assert named == ["a/2"]


async def test_documents_are_filtered(listing: Listing, store: Store) -> None:
    """Filters by beginning of the uri, kind, collection and source hold for list and number."""
    source = await store.sources.register(PROJECT, "key", "docs", "directory", "/docs")
    leased = await store.sources.take(source, timedelta(minutes=1), 0)
    await write(store, "docs/a", "docs/b", origin=leased.origin, start=30)
    await write(store, "docs", "docs2", "x_y", "xzy", "\U0010ffff", "\U0010ffffa", start=50)
    await write(store, "docs/c", "z", collections=("book",), kind="markdown", start=70)
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({"under": "docs/"}, ["docs/a", "docs/b", "docs/c"]),
        ({"under": "x_"}, ["x_y"]),
        ({"under": "\U0010ffff"}, ["\U0010ffff", "\U0010ffffa"]),
        ({"kind": "markdown"}, ["docs/c", "z"]),
        ({"collection": "book", "under": "docs"}, ["docs/c"]),
        ({"source": "docs"}, ["docs/a", "docs/b"]),
        ({"collection": "none"}, []),
    ]
    for conditions, expected in filters:
        assert await pages(listing, None, 2, **conditions) == expected
        assert await listing.count_documents(PROJECT, None, **conditions) == len(expected)
    with pytest.raises(NotFound, match="has no source 'other'"):
        await listing.documents(PROJECT, None, source="other")
    with pytest.raises(UnknownProject):
        await listing.documents("none", None)


@pytest.mark.parametrize("after", ["docs/a", "e30", "WzEsMl0", "!", "W" * 20_000])
async def test_a_wrong_cursor_is_refused(listing: Listing, store: Store, after: str) -> None:
    """A text that is not a cursor of the list is refused."""
    await write(store, "a")
    with pytest.raises(UsageError, match="is not a cursor"):
        await listing.documents(PROJECT, None, after=after)
    assert await listing.documents(PROJECT, None, after=cursor_of("a")) == []


async def test_a_document_is_described(listing: Listing, store: Store) -> None:
    """A document has its counts, its last change and its source; a private one comes first."""
    await write(store, "a", title="Title", collections=("c", "b"), commit="c0ffee", start=20)
    await write(store, "a", agent="ann", start=40)
    shared = await listing.document(PROJECT, None, "a")
    assert (shared.agent, shared.title, shared.collections) == (None, "Title", ("b", "c"))
    assert (shared.lines, shared.chunks, shared.tokens, shared.pending) == (1, 1, 3, 0)
    assert (shared.token, shared.event_id) == (LogPosition(20, 0).token, "event-20")
    assert (await listing.document(PROJECT, "ann", "a")).agent == "ann"
    assert (await listing.document(PROJECT, "bob", "a")).agent is None
    with pytest.raises(NotFound):
        await listing.document(PROJECT, None, "b")


async def test_another_project_is_invisible(listing: Listing, store: Store) -> None:
    """Lists of a project contain nothing of another one."""
    await write(store, "a")
    await write(store, "secret", project="beta", collections=("c",), start=30)
    await store.sources.register("beta", "key", "source", "directory", "/secret")
    assert [row.uri for row in await listing.documents(PROJECT, EVERY_AGENT)] == ["a"]
    assert await listing.collections(PROJECT, None) == []
    assert await listing.sources(PROJECT) == []
    assert [row.event_id for row in await listing.changes(PROJECT, EVERY_AGENT)] == ["event-10"]
    with pytest.raises(NotFound):
        await listing.lines(PROJECT, EVERY_AGENT, "secret")
    assert await listing.change(PROJECT, LogPosition(30, 0).token) is None


async def test_lines_are_those_of_the_document(listing: Listing, store: Store) -> None:
    """Any range of lines is read; the whole is compared with the hash of the document."""
    text = "one\ntwo\n\n\nfive\nsix six\n"
    chunks = (
        chunk_write(0, "one\ntwo", start_line=1, end_line=2),
        chunk_write(1, "five", start_line=5, end_line=5),
        chunk_write(2, "six ", start_line=6, end_line=6),
        chunk_write(3, "six", start_line=6, end_line=6),
    )
    for uri, published in (("a", text), ("crlf", text.replace("\n", "\r\n"))):
        values: dict[str, Any] = {"content_hash": content_hash(published), "chunks": chunks}
        await store.apply([document_write(uri, 10 + len(uri), **values)])
    whole = await listing.lines(PROJECT, None, "a")
    assert whole.text + whole.ending == text
    assert (whole.first, whole.last, whole.total, whole.exact) == (1, 6, 6, True)
    assert (await listing.lines(PROJECT, None, "crlf")).exact is False
    rows = text.split("\n")
    with pytest.raises(NotFound, match="a has no line 7; its last line is 6"):
        await listing.lines(PROJECT, None, "a", first=7)
    for first in range(1, 7):
        for last in range(1, 9):
            part = await listing.lines(PROJECT, None, "a", first=first, last=last)
            assert part.text == "\n".join(rows[first - 1 : min(last, 6)])
    page = await listing.chunks(PROJECT, None, "a", limit=3)
    rest = await listing.chunks(PROJECT, None, "a", after=page[-1].number)
    assert [chunk.content for chunk in (*page, *rest)] == ["one\ntwo", "five", "six ", "six"]


async def test_changes_are_listed_with_their_outcomes(listing: Listing, store: Store) -> None:
    """Changes come newest first, with reasons, and private ones only to their agent."""
    for partition in range(3):
        uris = [f"{partition}-{number}" for number in range(4)]
        await write(store, *uris, start=20 + 10 * partition, partition=partition)
    await write(store, "private", agent="ann", start=90)
    problem = Problem(type="LimitExceeded", detail="too long")
    await store.record_rejected(
        project=PROJECT, partition=1, position=99, event_id="e", problem=problem, agent="", uri="x"
    )
    every: list[ChangeRow] = []
    while page := await listing.changes(
        PROJECT, "ann", after=every[-1].token if every else None, limit=4
    ):
        every += page
    positions = [LogPosition.from_token(row.token) for row in every]
    assert positions == sorted(positions, reverse=True)
    assert len(every) == 14
    assert [row.uri for row in await listing.changes(PROJECT, "bob")] == [
        row.uri for row in every if row.uri != "private"
    ]
    (rejected,) = await listing.changes(PROJECT, None, state="rejected")
    assert (rejected.uri, rejected.detail, rejected.event_id) == ("x", "too long", "e")
    (change,) = await listing.changes(PROJECT, None, uri="1-2")
    assert await listing.change(PROJECT, change.token) == change
    assert (change.state, change.uri, change.agent) == ("indexed", "1-2", "")
    assert await listing.changes(PROJECT, None, uri="") == []
    private = await listing.change(PROJECT, LogPosition(90, 0).token)
    assert private is not None
    assert (private.state, private.uri, private.agent) == ("indexed", None, None)
    own = await listing.change(PROJECT, private.token, "ann")
    assert own is not None
    assert (own.uri, own.agent) == ("private", "ann")
    assert await listing.change(PROJECT, private.token, "bob") == private
    await store.record_rejected(
        project=PROJECT, partition=1, position=98, event_id="f", problem=problem, agent="ann"
    )
    refused = await listing.change(PROJECT, LogPosition(98, 1).token)
    assert refused is not None
    assert (refused.state, refused.detail) == ("rejected", None)
    own = await listing.change(PROJECT, refused.token, "ann")
    assert own is not None
    assert (own.state, own.detail) == ("rejected", "too long")


async def test_sources_show_their_latest_batch(listing: Listing, store: Store) -> None:
    """A source has its documents, and what its latest sync found and left out."""
    source = await store.sources.register(PROJECT, "key", "docs", "directory", "/docs")
    leased = await store.sources.take(source, timedelta(minutes=1), 0)
    await write(store, "a", "b", origin=leased.origin, start=30)
    (row,) = await listing.sources(PROJECT)
    assert (row.name, row.documents, row.batch, row.found) == ("docs", 2, None, None)
    for batch in ("first", "second"):
        await store.batches.begin(PROJECT, batch, source_id=source.id, started_by="me")
        skipped = [SkippedFiles("binary", 3, ("x", "y"))]
        await store.batches.update(PROJECT, batch, found=5, skipped=skipped, published=2)
    (row,) = await listing.sources(PROJECT)
    assert row.batch is not None
    assert (row.batch.id, row.batch.started_by, row.batch.published) == ("second", "me", 2)
    assert (row.found, row.skipped_count, row.skipped) == (5, 3, tuple(skipped))


async def test_history_has_every_minute(
    listing: Listing, store: Store, database: FreshDatabase
) -> None:
    """Each minute has its number of changes and their freshness; minutes without any have none."""
    published_at = datetime.now(UTC) - timedelta(seconds=2)
    await write(store, "a", "b", "c", published_at=published_at)
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("update ledger set handled_at = handled_at - interval '2 minutes'")
    await owner.execute("update ledger set published_at = handled_at - interval '1 second'")
    await owner.close()
    rows = await listing.history(PROJECT, minutes=5)
    assert len(rows) == 5
    assert [later.minute - earlier.minute for earlier, later in pairwise(rows)] == [
        timedelta(minutes=1)
    ] * 4
    (busy,) = [row for row in rows if row.changes]
    assert (busy.changes, busy.rejected) == (3, 0)
    assert busy.freshness_p50_ms == busy.freshness_p99_ms == pytest.approx(1000)
    assert {row.freshness_p50_ms for row in rows if not row.changes} == {None}


async def test_a_project_is_counted_by_kind(listing: Listing, store: Store) -> None:
    """A project has the counts of the documents that the agent sees."""
    await write(store, "a", "b", kind="code")
    await write(store, "c", agent="ann", start=30)
    row = await listing.project(PROJECT, "ann")
    assert (row.documents, row.chunks, row.kinds) == (3, 3, {"code": 2, "text": 1})
    assert (await listing.project(PROJECT, None)).documents == 2
