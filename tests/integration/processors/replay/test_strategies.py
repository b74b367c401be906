"""Chunking by collection: chosen, put into effect by a replay, and kept by the worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentIndexed
from processors.doctor.findings import Severity
from processors.replay.replay import Replay
from processors.replay.scope import Choice
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import UsageError
from store.documents import collections
from tests.support.databases import Database
from tests.support.doctors import examine
from tests.support.model_server import running_server, status
from tests.support.replays import HASHING, Struck, replay, rows, struck, tools
from tests.support.running import Headrace, headrace

CHUNKS = """
    select c.content
    from documents d join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
    where d.generation_id = $1 and d.uri = $2
    order by c.ordinal
"""
CACHED = "select count(*)::int as vectors from vector_cache where $1 > 0"
WORDS = ["river", "gate", "weir", "sluice", "pond", "heron", "mill"]


def sentences(name: str, count: int = 60) -> list[str]:
    """Sentences of a text; no other name has any of them."""
    return [
        f"The {WORDS[n % 7]} of {name} number {n} stood behind the old {WORDS[n // 7 % 7]}."
        for n in range(count)
    ]


TEXT = " ".join(sentences("Ahr"))
OTHER = " ".join(sentences("Rur"))


@pytest.fixture
async def worker(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker that has indexed texts in the collections ``talks`` and ``notes``."""
    async with headrace(redis_url, database, model=HASHING) as running:
        await running.change("talk.txt", TEXT, collections=("talks",))
        await running.change("note.txt", OTHER, collections=("notes",))
        await running.change("secret.txt", TEXT, collections=("talks",), agent="ada")
        yield running


@pytest.fixture
async def opened(worker: Headrace, database: Database) -> AsyncIterator[OperatorTools]:
    """Tools of replays."""
    async with tools(worker.redis_url, database) as opened:
        yield opened


async def choose(opened: OperatorTools, **strategies: str) -> None:
    """Choose the chunking of collections."""
    project_id = await opened.projects.require("docs")
    async with opened.database.scope(project_id) as connection:
        for name, strategy in strategies.items():
            await collections.choose_strategy(connection, project_id, name, strategy)


async def chunks(database: Database, uri: str) -> list[str]:
    return [row["content"] for row in await rows(database, "docs", CHUNKS, uri)]


async def publish(worker: Headrace, uri: str, content: str, collection: str) -> Receipt:
    change = DocumentChange(project="docs", uri=uri, content=content, collections=(collection,))
    return await worker.client.publish(change)


async def vectors(database: Database) -> int:
    [row] = await rows(database, "docs", CACHED)
    return int(row["vectors"])


async def test_a_choice_takes_effect_by_a_replay(
    worker: Headrace, opened: OperatorTools, database: Database
) -> None:
    """Until the replay, new documents are cut as before; then all of the collection as chosen."""
    before = await chunks(database, "talk.txt"), await chunks(database, "note.txt")
    await choose(opened, talks="semantic")
    await worker.change("second.txt", f"{OTHER} End.", collections=("talks",))
    assert len(await chunks(database, "second.txt")) == len(before[1])
    report = await replay(opened, collection="talks")
    assert report.cost.tokens > 0
    generation = await opened.store.generation("docs")
    assert generation.recipe.strategies == {"talks": "semantic"}
    after = await chunks(database, "talk.txt")
    assert after != before[0]
    assert "".join(after) == TEXT
    assert await chunks(database, "secret.txt") == after
    assert all(chunk.rstrip().endswith(".") for chunk in after)
    assert await chunks(database, "note.txt") == before[1]


async def test_an_edit_embeds_few_texts(
    worker: Headrace, opened: OperatorTools, database: Database
) -> None:
    """A live edit of a document that is cut by topic embeds one sentence and a few chunks."""
    await choose(opened, talks="semantic")
    await replay(opened)
    await worker.change("old/talks/talk.txt", TEXT, collections=("talks",))
    held = await vectors(database)
    edited = TEXT.replace("number 30 stood", "number 30 stands")
    outcome = await worker.change("old/talks/talk.txt", edited, collections=("talks",))
    assert isinstance(outcome, DocumentIndexed)
    assert 0 < outcome.data.chunks_added <= 4
    assert 2 <= await vectors(database) - held <= 5
    assert outcome.data.tokens_embedded > 0
    again = await vectors(database)
    await worker.change("copy/of/talks/talk.txt", TEXT, collections=("talks",))
    assert await vectors(database) == again


async def test_vectors_of_sentences_are_private_too(
    opened: OperatorTools, database: Database
) -> None:
    """The sentences of a private document are not shared with the public one of the same text."""
    before = await vectors(database)
    await choose(opened, talks="semantic")
    await replay(opened)
    new = await vectors(database) - before
    assert new >= 2 * len(sentences("Ahr"))


async def test_a_dry_run_counts_sentences_and_embeds_nothing(
    opened: OperatorTools, database: Database
) -> None:
    """The estimate has the sentences besides the chunks."""
    await choose(opened, talks="semantic")
    before = await vectors(database)
    plan = await Replay(opened, "docs", Choice(), None, lambda *_: None).plan()
    assert plan.sentences == 2 * len(sentences("Ahr"))
    assert plan.tokens >= 2 * len(TEXT.split())
    assert await vectors(database) == before


async def test_a_replay_is_not_resumed_with_another_chunking(opened: OperatorTools) -> None:
    """A half-built generation keeps the strategies that it was begun with."""
    await choose(opened, talks="semantic")
    with struck("replay.building"), pytest.raises(Struck):
        await replay(opened)
    await choose(opened, talks="fixed:60")
    with pytest.raises(UsageError, match="chunking of talks semantic"):
        await replay(opened)
    await choose(opened, talks="semantic")
    assert (await replay(opened)).resumed


async def test_the_doctor_names_choices_and_conflicts(
    worker: Headrace, opened: OperatorTools
) -> None:
    """Choices without a replay, and documents with two choices, are notes."""
    await worker.change("both.txt", OTHER, collections=("talks", "notes"))
    await choose(opened, talks="semantic", notes="fixed:80:10")
    [note] = (await examine(opened)).findings
    assert (note.name, note.severity) == ("generation.chunking", Severity.NOTE)
    assert {subject.label for subject in note.subjects} == {
        "talks: semantic",
        "notes: fixed:80:10",
    }
    await replay(opened)
    [conflict] = (await examine(opened)).findings
    assert (conflict.name, conflict.severity) == ("collection.conflict", Severity.NOTE)
    assert conflict.examples(3) == ["both.txt in notes, talks"]


async def test_a_model_that_is_down_delays_only_what_is_cut_by_topic(
    redis_url: str, database: Database
) -> None:
    """Documents of other collections are indexed, and the others when the model is back."""
    async with running_server() as server:
        model: dict[str, Any] = {
            "model": "openai/topics",
            "model_base_url": server.base_url,
            "model_api_key": server.key,
            "model_requests": {"retries": 0, "failures": 10_000},
            "retry_delay": timedelta(seconds=0.1),
        }
        async with headrace(redis_url, database, **model) as worker:
            await worker.change("talk.txt", TEXT, collections=("talks",))
            async with tools(redis_url, database, **model) as opened:
                await choose(opened, talks="semantic")
                await replay(opened)
            server.faults.extend([status(503)] * 10_000)
            late = await publish(worker, "late.txt", OTHER, "talks")
            soon = await publish(worker, "soon.txt", f"{OTHER} End.", "notes")
            assert isinstance(await worker.outcome(soon, vectors=False), DocumentIndexed)
            assert await chunks(database, "late.txt") == []
            server.faults.clear()
            assert isinstance(await worker.outcome(late), DocumentIndexed)
            assert "".join(await chunks(database, "late.txt")) == OTHER
