"""Calibration by a running worker: weak answers, and the spread of a user's own model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from processors.answering.calibration import CalibrationUpkeep
from processors.embedders.local.tokenizer import tokenizer_path
from processors.embedders.registry import Embedders
from runtime.errors import Unavailable
from store.generations.catalog import Generation, Projects
from store.postgres.pool import Database as WorkerDatabase
from store.search import due_projects
from store.store import Store
from tests.support.bert import write_model
from tests.support.databases import Database
from tests.support.running import LOCAL_MODEL, PATIENCE, Headrace, headrace
from tests.support.searching import Index, unit_vectors
from tests.support.waiting import eventually
from tests.support.writes import RECIPE

BIRDS = ("heron", "grebe", "stork", "crane", "swan", "coot")


async def calibrated(running: Headrace, worker: WorkerDatabase) -> Mapping[str, Any]:
    """Publish 120 documents and wait for the calibration of their generation."""
    changes = [
        DocumentChanged(
            data=DocumentChange(
                project="docs",
                uri=f"{number}.md",
                content=f"# The {bird} at lake {number}\n\nThe {bird} nests in reeds in April.",
            )
        )
        for number in range(120)
        for bird in [BIRDS[number % len(BIRDS)]]
    ]
    receipts = await running.client.publish_many(changes, Lane.BULK)
    await running.client.wait(receipts, PATIENCE, vectors=True)

    async def live() -> Generation | None:
        return await Store(worker, RECIPE).live("docs")

    async def is_calibrated() -> bool:
        generation = await live()
        return generation is not None and bool(generation.calibration)

    await eventually(is_calibrated, "the generation is calibrated")
    generation = await live()
    assert generation is not None
    return generation.calibration


async def _is_confident(running: Headrace) -> bool:
    """Return whether answers about herons have a confidence."""
    answer = await running.client.ask("docs", "When does the heron nest?")
    return answer.confidence is not None


async def test_an_answer_to_an_unrelated_question_is_weak(
    redis_url: str, database: Database, worker: WorkerDatabase
) -> None:
    """A question that the project answers is not weak, one about another subject is."""
    async with headrace(redis_url, database, model=LOCAL_MODEL) as running:
        await running.change("first.md", "The heron nests in reeds.")
        small = await running.client.ask("docs", "When does the heron nest?")
        assert (small.confidence, small.weak) == (None, False)
        calibration = await calibrated(running, worker)
        assert calibration.keys() == {LOCAL_MODEL}
        assert "spread" not in calibration[LOCAL_MODEL]
        # the first question has cached the generation for some seconds
        await eventually(lambda: _is_confident(running), "the generation is read again")
        own = await running.client.ask("docs", "When does the heron nest?")
        assert own.confidence is not None
        assert own.confidence > 0.99
        assert not own.weak
        other = await running.client.ask("docs", "How do central banks control interest rates?")
        assert other.confidence is not None
        assert other.weak
        assert other.results
        words = await running.client.ask("docs", "How do central banks act?", mode="keyword")
        assert (words.confidence, words.weak) == (None, False)


async def test_the_spread_of_another_model_is_measured(
    redis_url: str, database: Database, worker: WorkerDatabase, tmp_path: Path
) -> None:
    """A user's own model is scaled by its spread in the project."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path(None)))
    directory = write_model(tmp_path / "model", tokenizer, width=16, layers=1)
    async with headrace(
        redis_url, database, model=LOCAL_MODEL, model_directory=directory
    ) as running:
        [(model, measured)] = (await calibrated(running, worker)).items()
        assert model.startswith("local/model-")
        assert measured["spread"] > 0
        assert measured["chunks"] >= 100
        answer = await running.client.ask("docs", "When does the heron nest?")
        assert len(answer.results) == 10


async def test_a_model_that_is_down_keeps_no_other_project_from_its_turn(
    worker: WorkerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The projects behind it are calibrated, and only its own one is due again."""

    class Faulty(CalibrationUpkeep):
        async def _calibrate(self, project: str, live: Generation) -> bool:
            if project == "first":
                raise Unavailable("the model is down")
            done.append(project)
            return False

    done: list[str] = []
    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    index, vectors = Index.of(worker), unit_vectors(1, 1, 8)
    for project in ("first", "second"):
        await index.write("a", "text", vectors=vectors, project=project)
    await Faulty(worker, Projects(worker), index.search, Embedders()).run_once()
    assert done == ["second"]
    async with worker.connection() as connection:
        noted = await connection.fetch(
            "select project from maintenance_due where task = 'calibration'"
        )
    assert [row["project"] for row in noted] == [(await index.live("first")).project_id]


async def test_a_model_that_another_worker_has_calibrated_is_not_measured_again(
    worker: WorkerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may do so while the projects before this one are measured, which can take minutes."""

    class Late(CalibrationUpkeep):
        async def _chunks(self, live: Generation, model: str, limit: int) -> int:
            await self._note(live, {model: {"chunks": 100.0}})
            return limit

        async def _measured(self, project: str, live: Generation, model: str) -> dict[str, float]:
            measured.append(project)
            return {}

    measured: list[str] = []
    monkeypatch.setattr(due_projects, "MATURITY", timedelta())
    index = Index.of(worker)
    await index.write("a", "text", vectors=unit_vectors(1, 1, 8), project="first")
    await Late(worker, Projects(worker), index.search, Embedders()).run_once()
    assert list((await index.live("first")).calibration.values()) == [{"chunks": 100.0}]
    assert measured == []
