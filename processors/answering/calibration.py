"""Calibration of a generation's models, estimated in the background from the index itself.

Spread: models differ in their range; e5 and bge crowd their cosines between .7 and .9. One point of
BM25 is worth a fixed difference of all-MiniLM-L6-v2's cosines (see ``fusion``), so the cosines of
others are divided by their spread relative to it. It is measured by questions that the project has
answers for: its own headings.

Confidence: the best cosine of an unrelated question depends on the model, and on the number and the
subject of the chunks. So its distribution is measured by questions about everything. An answer
whose best cosine an unrelated question could have too is weak. Figures are in
docs/explanation/decisions/confidence.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import erf, sqrt
from typing import Protocol

import numpy as np
import structlog

from events.models import Filters
from processors.answering.unrelated import UNRELATED_QUESTIONS
from processors.embedders.embedder import Embedder, Urgency
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.lifespan import IdlePace
from runtime.settings import LOCAL_MODEL
from store.generations import catalog
from store.generations.catalog import Generation, Projects
from store.postgres.pool import Database
from store.search.due_projects import DueProject, DueProjects, Task
from store.search.search import Search
from store.types import SearchRequest

__all__ = [
    "WEAK_BELOW",
    "CalibrationUpkeep",
    "confidence_of",
    "is_sentence",
    "relative_spread",
    "spreads_of",
    "unrelated_of",
]

log = structlog.get_logger(__name__)

HEADINGS = 200
CANDIDATES = 100
_LEAST_HEADINGS = 20
_REFERENCE_SPREAD = 0.082
"""Mean standard deviation of the cosines of the best 100 chunks by all-MiniLM-L6-v2."""

WEAK_BELOW = 0.933
"""Confidence below which an answer is weak: 1.5 standard deviations above unrelated questions."""

_SPREAD = "spread"
_MEAN = "unrelated_mean"
_DEVIATION = "unrelated_deviation"
_CHUNKS = "chunks"
_GROWTH = 2.0
"""Factor by which an index grows until it is measured again."""

_ALL = 2**31 - 1
_LEAST_WORDS = 4
_PUNCTUATION = ".,;:!?\"'"

_INTERVAL = timedelta(seconds=4)
_BATCH = 16
"""Headings per call of a model, so that questions do not wait long."""


class Models(Protocol):
    """The models that recipes name."""

    async def embedder(self, model: str) -> Embedder:
        """Return the model of a full name, ready for use."""
        ...


def spreads_of(generation: Generation) -> dict[str, float]:
    """Spread of each calibrated model of a generation, relative to all-MiniLM-L6-v2."""
    return {
        model: measured[_SPREAD]
        for model, measured in generation.calibration.items()
        if measured.get(_SPREAD, 0.0) > 0
    }


def relative_spread(cosines: Sequence[Sequence[float]]) -> float | None:
    """Mean standard deviation of the cosines of each question's best 100 chunks, over MiniLM's.

    Returns None if there are less than 20 questions with 100 chunks: their spread is not known.
    """
    complete = [ranked for ranked in cosines if len(ranked) >= CANDIDATES]
    if len(complete) < _LEAST_HEADINGS:
        return None
    spread = float(np.mean([np.std(ranked[:CANDIDATES]) for ranked in complete]))
    return spread / _REFERENCE_SPREAD if spread > 0 else None


def unrelated_of(cosines: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation of the best cosine of each unrelated question."""
    return {_MEAN: float(np.mean(cosines)), _DEVIATION: float(np.std(cosines))}


def is_sentence(text: str) -> bool:
    """Return whether a question has four plain words or more.

    Names and single words are often dissimilar to the chunks that contain them.
    """
    words = [word.strip(_PUNCTUATION) for word in text.split()]
    plain = [word for word in words if word.isalpha() and word[1:].islower()]
    return len(plain) >= _LEAST_WORDS


def confidence_of(
    calibration: Mapping[str, Mapping[str, float]], text: str, best: Mapping[str, float]
) -> float | None:
    """Share of unrelated questions whose best cosine is lower than that of a question, 0 to 1.

    The best cosines of unrelated questions are taken as normally distributed.

    Args:
        calibration: measurements by model.
        text: the question.
        best: best cosine of the question by model; with several models, the highest share counts.

    Returns:
        None if the question is not a sentence, or none of its models is calibrated.
    """
    if not is_sentence(text):
        return None
    shares = [
        0.5 * (1 + erf((cosine - measured[_MEAN]) / (measured[_DEVIATION] * sqrt(2))))
        for model, cosine in best.items()
        if (measured := calibration.get(model, {})) and measured.get(_DEVIATION, 0.0) > 0
    ]
    return max(shares, default=None)


class CalibrationUpkeep:
    """Calibrates the models of live generations in the background.

    A generation is measured when it has 100 chunks, and again when it has twice as many. Several
    workers may measure the same one at once; they store the same values.
    """

    def __init__(
        self, database: Database, projects: Projects, search: Search, models: Models
    ) -> None:
        self._database = database
        self._projects = projects
        self._search = search
        self._models = models
        self._due = DueProjects(database, Task.CALIBRATION)

    async def run(self, stop: asyncio.Event, count: Callable[[], int] = lambda: 0) -> None:
        """Run until ``stop`` is set; failures are logged, and retried later.

        It runs less often while ``count``, that of this worker's events, stays the same.
        """
        pace = IdlePace(_INTERVAL, count)
        while not stop.is_set():
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - it must not end the worker
                log.warning("calibration.failed", error=repr(error))
            await pace.pause(stop)

    async def run_once(self) -> None:
        """Calibrate the models of every project that is due.

        A project whose model fails is logged, and due again later.

        Raises:
            Unavailable: Postgres cannot be reached.
        """
        due = await self._due.take()
        if not due:
            return
        names = {project_id: name for name, project_id in (await self._projects.all()).items()}
        async with self._database.connection() as connection:
            live = await catalog.live_generations(
                connection, [project.project_id for project in due]
            )
        done: list[DueProject] = []
        for project in due:
            name, generation = names.get(project.project_id), live.get(project.project_id)
            is_measured = False
            try:
                if name is not None and generation is not None:
                    is_measured = await self._calibrate(name, generation)
            except Exception as error:  # noqa: BLE001 - it must not stop the other projects
                log.warning("calibration.failed", project=name, error=repr(error))
                continue
            done.append(project)
            if is_measured:  # which takes long
                await self._due.settle(done)
                done.clear()
        await self._due.settle(done)

    async def _calibrate(self, project: str, live: Generation) -> bool:
        """Measure the models that are due; return whether there are any."""
        is_measured = False
        for model in live.recipe.model_names:
            if model == HASHING_MODEL:  # its cosines only count words
                continue
            measured_chunks = live.calibration.get(model, {}).get(_CHUNKS, CANDIDATES / _GROWTH)
            due_at = int(_GROWTH * measured_chunks)
            is_due = await self._chunks(live, model, due_at) == due_at
            if is_due and await self._is_current(live, model):
                chunks = await self._chunks(live, model, _ALL)
                measured = {_CHUNKS: float(chunks), **await self._measured(project, live, model)}
                await self._note(live, {model: measured})
                is_measured = True
                log.info("model.calibrated", project=project, model=model, **measured)
        return is_measured

    async def _measured(self, project: str, live: Generation, model: str) -> dict[str, float]:
        embedder = await self._models.embedder(model)
        unrelated = await self._cosines(project, live, embedder, UNRELATED_QUESTIONS)
        measured = unrelated_of([ranked[0] for ranked in unrelated if ranked])
        if model != LOCAL_MODEL:  # the fusion's constants belong to it
            headings = await self._headings(live, model)
            spread = relative_spread(await self._cosines(project, live, embedder, headings))
            measured |= {} if spread is None else {_SPREAD: spread}
        return measured

    async def _chunks(self, live: Generation, model: str, limit: int) -> int:
        """Number of shared chunks with a vector of the model, counted up to a limit."""
        async with self._database.scope(live.project_id, None, live.id) as connection:
            return await catalog.count_vectors(connection, live.id, model, limit)

    async def _is_current(self, live: Generation, model: str) -> bool:
        """Return false if the project was switched, or another worker has calibrated the model.

        The measurements of other projects may have taken minutes since ``live`` was read.
        """
        async with self._database.scope(live.project_id) as connection:
            current = await catalog.live(connection, live.project_id)
        measured = current.calibration.get(model)
        return current.id == live.id and measured == live.calibration.get(model)

    async def _note(self, live: Generation, measured: Mapping[str, Mapping[str, float]]) -> None:
        """Store measurements beside those of the generation's other models."""
        async with self._database.scope(live.project_id) as connection:
            current = await catalog.find(connection, live.project_id, live.id)
            if current is not None:
                calibration = {**current.calibration, **measured}
                await catalog.note_calibration(connection, current, calibration)

    async def _headings(self, live: Generation, model: str) -> list[str]:
        """Headings of documents that the model embeds."""
        async with self._database.scope(live.project_id, None, live.id) as connection:
            sample = await catalog.sample_headings(connection, live.id, HEADINGS)
        return sorted({text for kind, text in sample if live.recipe.model_of(kind) == model})

    async def _cosines(
        self, project: str, live: Generation, embedder: Embedder, questions: Sequence[str]
    ) -> list[list[float]]:
        """Cosines of the best chunks for each question."""
        model = embedder.model
        cosines: list[list[float]] = []
        for first in range(0, len(questions), _BATCH):
            batch = questions[first : first + _BATCH]
            for vector in (await embedder.embed(batch, Urgency.QUERY)).vectors:
                request = SearchRequest(
                    project=project,
                    agent=None,
                    text=None,
                    vectors={model: vector},
                    filters=Filters(),
                    candidates=CANDIDATES,
                )
                ranked = (await self._search.candidates(live, request)).vector.get(model, [])
                cosines.append([score for _, score in ranked])
        return cosines
