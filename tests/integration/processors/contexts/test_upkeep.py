"""Contexts in repairs by the doctor, in purges, and under a writer that is faster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bench.content.language_model import LanguageModel, running_model
from processors.contexts import maintenance
from processors.contexts.maintenance import ContextMaintenance
from processors.embedding.single_flight import SharedEmbedding
from store.documents.contexts import Context, Contexts
from store.postgres.pool import Database as WorkerDatabase
from store.purge.rows import DeletedRows
from tests.support.contexts import contexts, counts, document, settings_of, settled
from tests.support.databases import Database
from tests.support.doctors import examine, is_archived
from tests.support.replays import damage, rows, tools
from tests.support.running import headrace
from tests.support.waiting import eventually

CHANGED = """
    update embeddings e set embedding = (
        select array_agg(case when place = 1 then 1 else 0 end)::halfvec
        from generate_series(1, 384) as place
    )
    where e.generation_id = $1
"""


@pytest.fixture
async def model() -> AsyncIterator[LanguageModel]:
    async with running_model() as running:
        yield running


async def test_the_doctor_makes_changed_vectors_again(
    redis_url: str, database: Database, model: LanguageModel, tmp_path: Path
) -> None:
    """A changed vector of a text with a context is found; its chunks get their contexts again."""
    settings = settings_of(model) | {"home": tmp_path}
    async with tools(redis_url, database, **settings) as opened:
        async with headrace(redis_url, database, **settings) as running:
            await running.change("birds.md", document())
            await settled(opened.database)
            await eventually(lambda: is_archived(opened), "everything is archived")
        written = await contexts(database)
        assert (await examine(opened)).findings == []
        await damage(database, CHANGED)
        found = await examine(opened, repair=True)
        assert {finding.name for finding in found.findings} == {"vector.changed"}
        live = await opened.store.generation("docs")
        stage = opened.context_stage(SharedEmbedding(opened.embedders, opened.pending))
        assert (await stage.run("docs", live)).failure is None
        assert await contexts(database) == written
        assert (await examine(opened)).findings == []
    assert len(model.requests) == 1


async def test_contexts_follow_late_vectors(
    redis_url: str,
    database: Database,
    model: LanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A document that had no vectors when its contexts were due gets them after its vectors."""
    settings = settings_of(model) | {"home": tmp_path}
    async with headrace(redis_url, database, only=("indexer",), **settings) as running:
        await running.change("birds.md", document(), vectors=False)
    async with tools(redis_url, database, **settings) as opened:
        stage = opened.context_stage(SharedEmbedding(opened.embedders, opened.pending))
        upkeep = ContextMaintenance(opened.database, opened.projects, stage)
        monkeypatch.setattr(maintenance, "VECTOR_PAUSE", timedelta())
        assert await upkeep.run_once()
        assert model.requests == []
        live = await opened.store.generation("docs")
        await opened.vector_stage().run_all("docs", live.id)
        assert await upkeep.run_once()
        assert all((await contexts(database)).values())
        assert await upkeep.run_once(), "the rows with contexts have noted the project"
        assert not await upkeep.run_once()


async def test_a_purge_drops_unused_contexts(
    redis_url: str, database: Database, worker: WorkerDatabase, model: LanguageModel
) -> None:
    """Sentences about a deleted document leave the cache; those of others stay."""
    async with headrace(redis_url, database, **settings_of(model)) as running:
        await running.change("birds.md", document())
        await running.change("gone.md", document({"carp": "The carp swims."}))
        await settled(worker)
        await running.change("gone.md", change="delete")
    async with tools(redis_url, database) as opened:
        live = await opened.store.generation("docs")
        purge = DeletedRows(opened.database, live.project_id)
        [gone] = [len(each.numbers) for each in model.requests if "carp" in each.window]
        assert await purge.purge_contexts([live]) == gone
        assert await purge.purge_contexts([live]) == 0
        assert await purge.purge_vectors([live]) == 2 * gone, "with and without the context"
    cached = await rows(database, "docs", "select sentence from contexts where $1 > 0")
    assert len(cached) == len(await contexts(database)) > 0


async def test_a_chunk_that_changed_in_between_gets_no_context(
    redis_url: str, database: Database, worker: WorkerDatabase, model: LanguageModel
) -> None:
    """An answer about a former version is not written to the new one; a lacking vector waits."""
    off = {"context": {"model": "openai/gpt-4o-mini", "base_url": "http://127.0.0.1:9/v1"}}
    async with headrace(redis_url, database, model_requests={"retries": 0}, **off) as running:
        await running.change("a.md", "# A\n\nThe old text.\n")
        async with tools(redis_url, database) as opened:
            live = await opened.store.generation("docs")
            stage = Contexts(worker)
            [document_id] = await stage.waiting(live, 0, 10)
            former = await stage.document(live, document_id)
            assert former is not None
            await running.change("a.md", "# A\n\nThe new text.\n")
            new = await stage.document(live, document_id)
            assert new is not None
    context = Context("About it.", b"k" * 32, b"h" * 32)
    assert await stage.apply(live, document_id, {former.chunks[0].chunk_id: context}) == 0
    assert await stage.apply(live, document_id, {new.chunks[0].chunk_id: context}) == 0
    assert (await counts(worker)).contexts_waiting == 1
    assert await stage.apply(live, document_id, {new.chunks[0].chunk_id: None}) == 0
    assert (await counts(worker)).contexts_without == 1
