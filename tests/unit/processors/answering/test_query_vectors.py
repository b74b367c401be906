"""Query vectors: the cache, and failures of models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from processors.answering.query_vectors import QueryVectors
from processors.embedders.embedder import Embedder, Embeddings, Urgency
from processors.embedders.hash_embedder import HashingEmbedder
from runtime.errors import ConfigurationError, Unavailable

SOON = timedelta(seconds=5)


class Counting(HashingEmbedder):
    """Model that records the texts it embeds."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        self.asked += texts
        return await super().embed(texts, urgency)


class Down(HashingEmbedder):
    """Model that is unavailable."""

    @property
    def model(self) -> str:
        return "down"

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        raise Unavailable("the model is down")


class Stuck(Down):
    """Model that never answers."""

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        await asyncio.Event().wait()
        raise AssertionError


class Models:
    """Models by name; any other name raises ConfigurationError."""

    def __init__(self, **models: Embedder) -> None:
        self._models = models

    async def loaded(self, model: str) -> Embedder:
        if model not in self._models:
            raise ConfigurationError(f"{model} needs a key")
        return self._models[model]


async def test_a_repeated_question_is_embedded_once() -> None:
    """An equal question gets its vector from the cache."""
    model = Counting()
    vectors = QueryVectors(Models(counting=model))
    first, _ = await vectors.embed("where?", ["counting"], SOON)
    again, _ = await vectors.embed("where?", ["counting"], SOON)
    assert model.asked == ["where?"]
    assert (first["counting"] == again["counting"]).all()


async def test_the_least_recently_asked_is_forgotten() -> None:
    """The cache drops the least recently used question at its limit."""
    model = Counting()
    vectors = QueryVectors(Models(counting=model), size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await vectors.embed(text, ["counting"], SOON)
    assert model.asked == ["a", "b", "c", "b"]


async def test_only_the_models_of_the_generation_are_asked() -> None:
    """Only the requested models embed the question."""
    asked, other = Counting(), Counting()
    vectors = QueryVectors(Models(asked=asked, other=other))
    found, errors = await vectors.embed("where?", ["asked"], SOON)
    assert (list(found), errors) == (["asked"], [])
    assert other.asked == []


async def test_a_model_that_is_down_takes_no_other_along() -> None:
    """A model that is down or without a key gives an error; the others give vectors."""
    vectors = QueryVectors(Models(down=Down(), counting=Counting()))
    found, errors = await vectors.embed("where?", ["down", "keyless", "counting"], SOON)
    assert list(found) == ["counting"]
    assert [type(error) for error in errors] == [Unavailable, ConfigurationError]


async def test_a_model_that_never_answers_counts_as_down() -> None:
    """A model that does not answer in time gives an error."""
    vectors = QueryVectors(Models(stuck=Stuck()))
    found, errors = await vectors.embed("where?", ["stuck"], timedelta(milliseconds=5))
    assert found == {}
    assert "took too long" in str(errors[0])
