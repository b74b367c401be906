"""Whole replays: the live index afterwards, and the texts that are embedded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from processors.embedding import stage
from processors.replay.replay import Replay
from processors.replay.scope import Choice
from processors.wiring.operator_tools import OperatorTools
from store.search import search
from tests.support.databases import Database
from tests.support.model_server import ModelServer, running_server
from tests.support.replays import HASHING, Struck, damage, notes, replay, rows, struck, tools
from tests.support.running import Headrace, headrace

STORED = """
    select d.agent, d.uri, d.position, d.partition, d.deleted, d.digest, c.content
    from documents d
    left join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
    where d.generation_id = $1
    order by d.agent, d.uri, c.ordinal
"""


@pytest.fixture
async def worker(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker that has indexed the notes in the project ``docs``."""
    async with headrace(redis_url, database, model=HASHING) as running:
        await notes(running)
        yield running


@pytest.fixture
async def opened(worker: Headrace, database: Database) -> AsyncIterator[OperatorTools]:
    """Tools of replays."""
    async with tools(worker.redis_url, database) as opened:
        yield opened


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Model server that records its requests."""
    async with running_server() as running:
        yield running


async def test_the_number_of_embedded_texts_is_reported(
    opened: OperatorTools, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of embedded texts is reported after each page."""
    monkeypatch.setattr(stage, "PAGE_TEXTS", 5)
    await damage(database, "delete from vector_cache where $1 > 0")
    told: list[tuple[str, int, int]] = []
    work = Replay(opened, "docs", Choice(), None, lambda *one: told.append(one))
    report = await work.run()
    texts = [one for one in told if one[0] == "docs: texts embedded"]
    assert texts == [("docs: texts embedded", n, 12) for n in (5, 10, 12)]
    assert report.cost.texts == 12


async def test_the_same_index_again(opened: OperatorTools, database: Database) -> None:
    """A replay with the same recipe gives the same rows and embeds nothing."""
    before = await rows(database, "docs", STORED)
    report = await replay(opened)
    assert (report.switched, report.cost.texts) == (True, 0)
    assert report.generation != report.former
    assert await rows(database, "docs", STORED) == before
    again = await replay(opened)
    assert (again.digest, again.former) == (report.digest, report.generation)


async def test_the_first_question_after_a_switch_reads_the_new_index(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that knows the former index still answers from the new one."""
    monkeypatch.setattr(search, "_LIVE_SECONDS", 60.0)
    async with headrace(redis_url, database, model=HASHING) as worker:
        await notes(worker)
        before = await worker.client.ask("docs", "word1")
        async with tools(redis_url, database) as opened:
            report = await replay(opened)
        after = await worker.client.ask("docs", "word1")
    assert [before.generation, after.generation] == [report.former, report.generation]
    assert after.results


@pytest.fixture
async def remote(
    worker: Headrace, database: Database, server: ModelServer
) -> AsyncIterator[OperatorTools]:
    """Tools of replays, with address and key of a remote model."""
    at = {
        "model_base_url": server.base_url,
        "model_api_key": server.key,
        "model_requests": {"retries": 0},
    }
    async with tools(worker.redis_url, database, **at) as opened:
        yield opened


async def test_a_changed_model_embeds_each_text_once(
    remote: OperatorTools, database: Database, server: ModelServer
) -> None:
    """A new model embeds each distinct text once."""
    report = await replay(remote, model="openai/test")
    texts = asked(server)
    assert len(texts) == len(set(texts)) == report.cost.texts == 12
    models = await rows(
        database,
        "docs",
        "select distinct m.name from embeddings e join models m on m.id = e.model_id"
        " where e.generation_id = $1",
    )
    assert [row["name"] for row in models] == ["openai/test"]


async def test_a_model_that_is_not_needed_is_not_asked(
    remote: OperatorTools, worker: Headrace, database: Database, server: ModelServer
) -> None:
    """A model whose vectors are all cached receives no request."""
    await replay(remote, model="openai/test")
    before = len(server.requests)
    at = {"model_base_url": server.base_url, "model_api_key": server.key}
    async with tools(worker.redis_url, database, **at) as later:
        report = await replay(later, chunking="2:512")
    assert (report.switched, report.cost.texts) == (True, 0)
    assert len(server.requests) == before


async def test_no_text_is_embedded_again_after_a_death(
    remote: OperatorTools, server: ModelServer
) -> None:
    """A replay that continues after a crash embeds no text again."""
    with struck("replay.building"), pytest.raises(Struck):
        await replay(remote, model="openai/test")
    report = await replay(remote, model="openai/test")
    assert (report.resumed, report.switched) == (True, True)
    assert len(asked(server)) == len(set(asked(server))) == 12


def asked(server: ModelServer) -> list[str]:
    """Texts sent to the model, without the one that measures its width."""
    return [text for request in server.requests for text in request if text != "width"]
