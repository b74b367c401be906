"""Contexts in replays: their cache, a dead provider, and a process that is killed in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

from bench.content.language_model import LanguageModel, running_model
from processors.embedding.single_flight import SharedEmbedding
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import Unavailable, UsageError
from runtime.failpoints import CONTEXT_POINTS
from store.documents.contexts import Contexts
from store.inspection.snapshot import snapshot
from store.inspection.vectors import vector_findings
from store.postgres.pool import Database as WorkerDatabase
from tests.support.contexts import MODEL, contexts, counts, document, settings_of, settled
from tests.support.databases import Database
from tests.support.replays import Struck, replay, rows, struck, tools
from tests.support.running import headrace


@pytest.fixture
async def model() -> AsyncIterator[LanguageModel]:
    async with running_model() as running:
        yield running


async def publish(redis_url: str, database: Database) -> None:
    """Index three documents, one of them private, without contexts."""
    async with headrace(redis_url, database) as running:
        await running.change("birds.md", document())
        await running.change("fish.md", document({"carp": "The carp swims."}))
        await running.change("own.md", document({"diary": "Seen today."}), agent="ada")


async def findings(opened: OperatorTools) -> list[str]:
    """Kinds of wrong vectors in the live generation."""
    live = await opened.store.generation("docs")
    async with snapshot(opened.database, live) as connection:
        return [finding.kind for finding in await vector_findings(connection, live)]


async def test_a_replay_asks_once_and_later_ones_use_the_cache(
    redis_url: str, database: Database, model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests do not depend on contexts, so a replay with contexts matches the log."""
    await publish(redis_url, database)
    async with tools(redis_url, database, **settings_of(model)) as opened:
        assert await contexts(database) == {}
        first = await replay(opened, context=MODEL)
        assert first.switched
        assert len(model.requests) == 3
        written = await contexts(database)
        assert all(written.values())
        assert await findings(opened) == []

        second = await replay(opened)
        assert (second.switched, second.digest) == (True, first.digest)
        assert len(model.requests) == 3
        assert await contexts(database) == written

        model.write = lambda _: "Written again."
        with monkeypatch.context() as patch:
            patch.setattr(Contexts, "forget", AsyncMock(side_effect=Unavailable("killed")))
            with pytest.raises(Unavailable, match="killed"):
                await replay(opened, refresh_context=True)
        assert (await replay(opened, refresh_context=True)).resumed
        assert len(model.requests) == 6
        assert set((await contexts(database)).values()) == {"Written again."}

        await replay(opened, context="off")
        assert await contexts(database) == {}
        with pytest.raises(UsageError, match="--refresh-context needs contexts"):
            await replay(opened, refresh_context=True)
        assert len(model.requests) == 6


async def test_a_partial_replay_copies_documents_with_contexts(
    redis_url: str, database: Database, model: LanguageModel
) -> None:
    """Documents out of scope get their contexts from the cache."""
    await publish(redis_url, database)
    async with tools(redis_url, database, **settings_of(model)) as opened:
        await replay(opened, context=MODEL)
        written = await contexts(database)
        model.requests.clear()
        report = await replay(opened, kind="code")
        assert report.switched
        assert await contexts(database) == written
        assert await findings(opened) == []
    assert model.requests == []


async def test_a_replay_does_not_depend_on_the_provider(
    redis_url: str, database: Database, worker: WorkerDatabase, model: LanguageModel
) -> None:
    """A replay switches while the provider is down; the workers write the contexts later."""
    await publish(redis_url, database)
    model.replies.extend([lambda _: web.Response(status=503)] * 10_000)
    async with tools(redis_url, database, **settings_of(model)) as opened:
        assert (await replay(opened, context=MODEL)).switched
    assert (await counts(worker)).contexts_waiting == len(await contexts(database)) > 0
    model.replies.clear()
    async with headrace(redis_url, database, **settings_of(model)):
        await settled(worker)
    assert all((await contexts(database)).values())


@pytest.mark.parametrize("place", CONTEXT_POINTS)
async def test_a_killed_process_loses_no_context(
    redis_url: str, database: Database, model: LanguageModel, place: str
) -> None:
    """After a kill at any place, each answer that was cached is used, and nothing is doubled."""
    async with headrace(redis_url, database, only=["indexer"], **settings_of(model)) as running:
        await running.change("birds.md", document(), vectors=False)
    async with tools(redis_url, database, **settings_of(model)) as opened:
        live = await opened.store.generation("docs")
        stage = opened.context_stage(SharedEmbedding(opened.embedders, opened.pending))
        await opened.vector_stage().run_all("docs", live.id)
        with struck(place):
            killed = await stage.run("docs", live)
        assert isinstance(killed.failure, Struck)
        resumed = await stage.run("docs", live)
        assert resumed.failure is None
        assert await findings(opened) == []
    assert len(model.requests) == 1
    assert all((await contexts(database)).values())
    doubled = await rows(
        database,
        "docs",
        "select document_id, ordinal from chunks where generation_id = $1"
        " group by 1, 2 having count(*) > 1",
    )
    assert doubled == []
