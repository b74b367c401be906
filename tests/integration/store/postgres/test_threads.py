"""Long computations inside a transaction: they keep its connection alive."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from store.documents import transaction
from store.postgres import connection
from store.postgres import pool as databases
from store.postgres.pool import Database
from store.search.keyword.postings import Postings
from store.search.keyword.segment_merge import FAN_IN
from store.search.keyword.writer import segments_of
from store.search.maintenance import Maintenance
from tests.support.databases import Database as Fresh
from tests.support.searching import Index

SILENCE = timedelta(seconds=1)


@pytest.fixture
async def index(database: Fresh, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Index]:
    """Index with a short limit of silence inside a transaction."""
    monkeypatch.setattr(databases, "_LONGEST_SILENCE", SILENCE)
    monkeypatch.setattr(connection, "_SIGN_OF_LIFE_S", 0.1)
    opened = await Database.open(database.worker_url, statement_timeout=timedelta(seconds=15))
    yield Index.of(opened)
    await opened.close()


def slowly(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the work with a pause that is longer than the limit of silence."""

    def busy(*args: Any, **kwargs: Any) -> Any:
        time.sleep(2.5 * SILENCE.total_seconds())
        return work(*args, **kwargs)

    return busy


async def test_a_large_document_is_written(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document whose terms take long to compute is written."""
    monkeypatch.setattr(transaction, "segments_of", slowly(segments_of))
    await index.write("a.md", *[f"walrus number{i}" for i in range(16)])
    assert (await index.candidates("number7")).keyword


async def test_large_segments_are_folded(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments whose postings take long to merge are folded."""
    for i in range(FAN_IN):
        await index.write(f"{i}.md", f"walrus number{i}")
    monkeypatch.setattr(Postings, "merge", slowly(Postings.merge))
    await Maintenance(index.database).tidy_keywords(await index.live())
    assert (await index.candidates("number7")).keyword
