"""Query vectors: asked for once, and never at the price of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from processors.answering.query_vectors import QueryVectors
from processors.inference.hashing import HashingEmbedder
from processors.inference.types import Embeddings, Urgency
from runtime.errors import Unavailable

SOON = timedelta(seconds=5)


class Counting(HashingEmbedder):
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        self.asked += texts
        return await super().embed(texts, urgency)


class Down(HashingEmbedder):
    """A model that can't be reached."""

    @property
    def model(self) -> str:
        return "down"

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        raise Unavailable("the model is down")


class Stuck(Down):
    """A model that never answers."""

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_repeated_question_is_embedded_once() -> None:
    """Agents ask the same thing again and again."""
    model = Counting()
    vectors = QueryVectors([model])
    first, _ = await vectors.embed("where?", SOON)
    again, _ = await vectors.embed("where?", SOON)
    assert model.asked == ["where?"]
    assert (first[model.model] == again[model.model]).all()


async def test_the_least_recently_asked_is_forgotten() -> None:
    """The cache is bounded, whatever is asked."""
    model = Counting()
    vectors = QueryVectors([model], size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await vectors.embed(text, SOON)
    assert model.asked == ["a", "b", "c", "b"]


async def test_a_model_that_is_down_takes_no_other_along() -> None:
    """Its error is told beside the vectors of the others."""
    vectors, errors = await QueryVectors([Down(), Counting()]).embed("where?", SOON)
    assert list(vectors) == ["local/hash-384"]
    assert [type(error) for error in errors] == [Unavailable]


async def test_a_model_that_never_answers_counts_as_down() -> None:
    """A query has a deadline; a model doesn't know it."""
    vectors, errors = await QueryVectors([Stuck()]).embed("where?", timedelta(milliseconds=5))
    assert vectors == {}
    assert "took too long" in str(errors[0])
