"""Worker during switches of its projects between generations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from events.client.questions import QueryRefused
from events.models import DocumentChange, DocumentChanged, DocumentIndexed, Query
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.indexing.preparation import Preparer
from processors.wiring.services import open_services
from runtime.settings import LOCAL_MODEL, Settings
from store.generations.catalog import Recipe
from store.search.search import Search
from tests.support.databases import Database
from tests.support.generations import Switchboard, switchboard
from tests.support.replays import damage, replay, tools
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.waiting import eventually
from tests.support.writes import opened

HASHED = Recipe(HASHING_MODEL)
LEARNED = Recipe(LOCAL_MODEL)
SHORT = Recipe(HASHING_MODEL, chunking="1:64")
KEYLESS = Recipe("openai/text-embedding-3-small")
TEXT = "# Weir\n\nA weir raises the level of the river.\n"
LONG = "\n\n".join(f"Paragraph {number} of the long story of the river." for number in range(40))


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker whose recipe is ``HASHED``, and a project with one document."""
    async with headrace(redis_url, database, model=HASHING_MODEL) as it:
        await it.change("river.md", TEXT)
        yield it


@pytest.fixture
async def board(running: Headrace) -> AsyncIterator[Switchboard]:
    async with switchboard(running.database, "docs") as it:
        yield it


def _once(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, then: Callable[[], Awaitable[Any]]
) -> None:
    """Call ``then`` after the first return of a method."""
    method = getattr(owner, name)
    done: list[object] = []

    async def wrapped(*arguments: Any) -> Any:
        result = await method(*arguments)
        if not done:
            done.append(await then())
        return result

    monkeypatch.setattr(owner, name, wrapped)


async def test_changes_and_questions_go_to_the_live_generation(
    running: Headrace, board: Switchboard
) -> None:
    """A worker follows a switch at once and loads a model that is not in its settings."""
    exactly = await running.client.ask("docs", "weir", mode="exact")
    first = exactly.generation
    assert len(exactly.results) == 1
    second = await board.switch(LEARNED)
    exactly = await running.client.ask("docs", "weir", mode="exact")
    assert (exactly.generation, exactly.results) == (second, ())
    assert (await running.client.ask("docs", "weir")).results == ()
    await running.change("mill.md", "# Mill\n\nThe mill grinds corn.\n")
    answer = await running.client.ask("docs", "what grinds corn?")
    assert answer.generation == second > first
    assert [one.citation.uri for one in answer.results] == ["mill.md"]
    assert answer.results[0].match_type == "hybrid"
    assert [place[:2] for place in await board.chunks(second)] == [("mill.md", LOCAL_MODEL)]
    assert [place[:2] for place in await board.chunks(first)] == [("river.md", HASHING_MODEL)]


async def test_a_model_that_the_settings_would_not_choose_is_reported_once(
    running: Headrace, board: Switchboard
) -> None:
    """A model that differs from the settings is logged once, with the replay command."""
    await board.switch(LEARNED)
    with capture_logs() as entries:
        await running.change("mill.md", TEXT)
        await running.client.ask("docs", "weir")
    [warning] = [entry for entry in entries if entry["event"] == "models.differ"]
    assert warning["remedy"] == f"headrace replay --project docs --model {HASHING_MODEL}"


async def test_a_change_prepared_before_a_switch_is_prepared_anew(
    running: Headrace, board: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that was prepared before a switch is prepared again for the new generation."""
    switched: list[int] = []

    async def switch() -> None:
        switched.append(await board.switch(Recipe(LOCAL_MODEL, chunking="1:64")))

    _once(monkeypatch, Preparer, "prepare_groups", switch)
    outcome = await running.change("story.md", LONG)
    assert isinstance(outcome, DocumentIndexed)
    assert outcome.data.outcome == "indexed"
    chunks = await board.chunks(switched[0])
    assert len(chunks) == outcome.data.chunks_added > 1
    assert {place[:2] for place in chunks} == {("story.md", LOCAL_MODEL)}
    assert max(tokens for _, _, tokens in chunks) <= 64


async def test_an_answer_is_of_one_generation(
    running: Headrace, board: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that is in progress during a switch is answered from the former generation."""
    before = await running.client.ask("docs", "weir")
    _once(monkeypatch, Search, "candidates", lambda: board.switch(SHORT))
    answer = await running.client.ask("docs", "weir")
    assert answer.generation == before.generation
    assert [one.citation.uri for one in answer.results] == ["river.md"]
    assert (await running.client.ask("docs", "weir")).generation > before.generation


async def test_a_question_can_be_put_to_a_generation_that_is_not_live(
    running: Headrace, board: Switchboard, redis_url: str, database: Database
) -> None:
    """A generation can be measured with questions while another one is live."""
    first = (await running.client.ask("docs", "weir")).generation
    await board.switch(SHORT)
    query = Query(project="docs", text="weir", reply_to="nobody")
    settings = Settings(redis_url=redis_url, database_url=database.worker_url, model=HASHING_MODEL)
    async with (
        opened(database.operator_url) as postgres,
        open_services(settings, ["answerer"]) as services,
    ):
        former = await Search(postgres).generation("docs", first)
        answer = await services.answering.answer("q", query, generation=former)
        assert (await services.answering.answer("q", query)).results == ()
    assert answer.generation == first
    assert [one.citation.uri for one in answer.results] == ["river.md"]


async def test_a_generation_that_vanishes_under_an_answer_leaves_no_hole(
    running: Headrace, board: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question whose generation is removed is answered from the live one."""
    first = (await running.client.ask("docs", "weir")).generation

    async def replace() -> None:
        await board.switch(HASHED)
        await running.change("copy.md", TEXT)
        await board.empty(first)

    _once(monkeypatch, Search, "candidates", replace)
    answer = await running.client.ask("docs", "weir")
    assert answer.generation > first
    assert [one.citation.uri for one in answer.results] == ["copy.md"]


async def test_a_generation_whose_model_has_no_key_answers_by_words(
    running: Headrace, board: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generation whose model has no key answers by keyword; vector mode is refused."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = await board.switch(HASHED)
    await running.change("river.md", TEXT)
    await board.rename(words, KEYLESS)
    answer = await running.client.ask("docs", "weir")
    assert answer.degraded == ("vector",)
    assert [one.citation.uri for one in answer.results] == ["river.md"]
    with pytest.raises(QueryRefused, match="OPENAI_API_KEY"):
        # the first use of this model loads a large library
        await running.client.ask("docs", "weir", mode="vector", timeout=PATIENCE)


async def test_a_batch_is_indexed_by_the_recipe_of_each_of_its_projects(
    running: Headrace, database: Database
) -> None:
    """Changes of two projects in a batch are embedded by their own models."""
    await running.change("river.md", TEXT, project="other")
    async with switchboard(database, "other") as other, switchboard(database, "docs") as board:
        generations = {"docs": await board.switch(HASHED), "other": await other.switch(LEARNED)}
        receipts = await running.client.publish_many(
            [
                DocumentChanged(data=DocumentChange(project=project, uri=uri, content=LONG))
                for uri in ("a.md", "b.md")
                for project in generations
            ],
            Lane.BULK,
        )
        outcomes = await running.client.wait(receipts, PATIENCE)
        assert {one.type for one in outcomes.values()} == {DocumentIndexed.TYPE}
        await running.client.wait(receipts, PATIENCE, vectors=True)
        models = {
            project: {place[:2] for place in await one.chunks(generations[project])}
            for project, one in {"docs": board, "other": other}.items()
        }
    assert models == {
        "docs": {("a.md", HASHING_MODEL), ("b.md", HASHING_MODEL)},
        "other": {("a.md", LOCAL_MODEL), ("b.md", LOCAL_MODEL)},
    }


async def test_terms_of_another_version_are_not_mixed(
    running: Headrace, database: Database
) -> None:
    """Changes wait for a replay if the terms have another version, and questions skip keywords."""
    await damage(database, "update generations set tokens = 99 where id = $1")
    assert (await running.client.ask("docs", "river")).degraded == ("keyword",)
    with pytest.raises(QueryRefused, match=r"version 99.*`headrace replay --project docs`"):
        await running.client.ask("docs", "river", mode="keyword")
    data = DocumentChange(project="docs", uri="late.md", content=TEXT)
    with capture_logs() as lines:
        receipt = await running.client.publish(DocumentChanged(data=data), Lane.LIVE)
        await eventually(
            lambda: any("version 99" in str(line) for line in lines), "the worker says why it waits"
        )
    async with tools(running.redis_url, database) as replaying:
        assert (await replay(replaying)).switched
    outcome = await running.outcome(receipt)
    assert outcome.type == "document.indexed"
    assert (await running.client.ask("docs", "river")).degraded == ()
