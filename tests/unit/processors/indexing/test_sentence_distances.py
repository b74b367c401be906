"""Distances between sentences: their values, and the sentences that are embedded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from events.names import LogPosition
from processors.chunking import Boundaries, Source, cut
from processors.embedders.embedder import Urgency
from processors.embedders.hash_embedder import HashingEmbedder
from processors.indexing.sentence_distances import AskedDocument, SentenceDistances, distances_of
from runtime.errors import CircuitOpen
from store.types import Vector
from tests.support.chunking import LIMIT_TOKENS, counter

MODEL = "local/hash-384"
CHANGE = LogPosition(1, 0)


@dataclass
class Totals:
    tokens: int
    cost_usd: float


class Cache:
    """Cache of a project; ``embedded`` are the texts of each call to the model."""

    def __init__(self, refused: str = "") -> None:
        self.vectors: dict[bytes, Vector] = {}
        self.embedded: list[list[str]] = []
        self._refused = refused

    async def read(self, project: str, model: str, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        assert (project, model) == ("docs", MODEL)
        return {key: self.vectors[key] for key in hashes if key in self.vectors}

    async def embed(
        self,
        project: str,
        model: str,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
    ) -> Totals:
        assert (project, model, urgency) == ("docs", MODEL, Urgency.LIVE)
        assert payers == dict.fromkeys(texts, CHANGE)
        self.embedded.append(list(texts.values()))
        result = await HashingEmbedder().embed(list(texts.values()), urgency)
        for (key, text), vector in zip(texts.items(), result.vectors, strict=True):
            if text != self._refused:
                self.vectors[key] = vector.astype(np.float16)
        return Totals(100, 0.5)


def asked(*runs: Sequence[str]) -> AskedDocument:
    hashes = [[hashlib.sha256(text.encode()).digest() for text in run] for run in runs]
    return AskedDocument(runs, hashes, CHANGE)


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


def test_the_distance_is_that_of_two_sentences_on_each_side() -> None:
    """The first boundary has none; at the ends there is one sentence on a side."""
    east, north = unit(1, 0), unit(0, 1)
    assert distances_of([east, east, north, north]) == [0, 2929, 10_000, 2929]
    assert distances_of([east, north, east]) == [0, 2929, 2929]
    assert distances_of([east]) == [0]
    assert distances_of([]) == []


def test_a_sentence_without_a_vector_has_no_distance() -> None:
    """A refused sentence is left out of the means."""
    east, north = unit(1, 0), unit(0, 1)
    assert distances_of([None, None]) == [0, 0]
    assert distances_of([east, None, north])[1:] == [10_000, 10_000]


def test_an_edit_changes_four_distances_at_most() -> None:
    """Distances elsewhere are equal to the last digit, however far away the edit is."""
    vectors = list(np.random.default_rng(1).normal(size=(500, 64)).astype(np.float32))
    before = distances_of(vectors)
    for place in (0, 3, 250, 499):
        edited = list(vectors)
        edited[place] = -vectors[place]
        after = distances_of(edited)
        changed = {i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
        assert 0 < len(changed) <= 4
        assert changed <= set(range(place - 1, place + 3))


async def test_each_sentence_is_embedded_once() -> None:
    """Sentences in the cache, or in several runs, are not embedded again."""
    cache = Cache()
    distances = SentenceDistances(cache.read, cache)
    first, second = asked(["a", "b"], ["b", "c"]), asked(["c", "longer"])
    measured = await distances.of("docs", MODEL, [first, second], Urgency.LIVE)
    assert cache.embedded == [["a", "b", "c", "longer"]]
    assert [len(run) for run in measured[0].distances] == [2, 2]
    assert (measured[0].tokens, measured[1].tokens) == pytest.approx((100 * 3 / 9, 100 * 6 / 9))
    assert sum(result.cost_usd for result in measured) == pytest.approx(0.5)
    again = await distances.of("docs", MODEL, [asked(["a", "b", "new"])], Urgency.LIVE)
    assert cache.embedded[1:] == [["new"]]
    assert again[0].distances[0][0] == 0
    assert [m.distances for m in await distances.of("docs", MODEL, [first], Urgency.LIVE)] == [
        measured[0].distances
    ]
    assert len(cache.embedded) == 2


async def test_a_refused_sentence_does_not_keep_a_document_out() -> None:
    """A sentence that the model refuses has no vector, and the others are measured."""
    cache = Cache(refused="b")
    [result] = await SentenceDistances(cache.read, cache).of(
        "docs", MODEL, [asked(["a", "b", "c"])], Urgency.LIVE
    )
    assert len(result.distances[0]) == 3
    assert result.distances[0][1] > 0


async def test_the_error_of_the_model_is_raised() -> None:
    """The errors are those of embedding."""

    class Down(Cache):
        async def embed(self, *_: object) -> Totals:
            raise CircuitOpen("the model is down")

    cache = Down()
    distances = SentenceDistances(cache.read, cache)
    with pytest.raises(CircuitOpen):
        await distances.of("docs", MODEL, [asked(["a"])], Urgency.LIVE)


async def test_an_edit_of_a_long_text_changes_few_chunks() -> None:
    """One edit among 1,000 sentences of a paragraph embeds one sentence and four chunks at most."""
    words = ["river", "gate", "weir", "sluice", "pond", "heron", "mill"]
    sentences = [
        f"The {words[n % 7]} of day {n} stood still behind the {words[n // 7 % 7]}."
        for n in range(1_000)
    ]
    cache = Cache()
    distances = SentenceDistances(cache.read, cache)

    async def chunks_of(text: str) -> set[str]:
        source = Source("a.txt", text, "text", strategy="semantic")
        first = cut(source, LIMIT_TOKENS, counter())
        [measured] = await distances.of("docs", MODEL, [asked(*first.asked)], Urgency.LIVE)
        second = replace(source, boundaries=Boundaries(measured.distances))
        return {chunk.content for chunk in cut(second, LIMIT_TOKENS, counter()).chunks}

    before = await chunks_of(" ".join(sentences))
    assert len(before) > 80
    for place in range(20, 1_000, 140):
        cache.embedded.clear()
        edited = list(sentences)
        edited[place] = f"Edit {place} has replaced this sentence by another one."
        after = await chunks_of(" ".join(edited))
        assert sum(map(len, cache.embedded)) == 1
        assert 0 < len(after - before) <= 4
