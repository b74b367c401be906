"""Lists of documents, chunks, lines and sources, read as an answerer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from store.listing import DocumentRow, Listing
from store.postgres.pool import EVERY_AGENT
from store.store import Store
from tests.support.databases import Database as FreshDatabase
from tests.support.writes import document_write, opened

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
    await store.apply(
        [
            document_write(uri, position, [f"text of {uri}"], **fields)
            for position, uri in enumerate(uris, fields.pop("start", 10))
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
