"""Spread of models, and confidence of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from processors.answering.calibration import (
    WEAK_BELOW,
    confidence_of,
    is_sentence,
    relative_spread,
    spreads_of,
    unrelated_of,
)
from processors.answering.fusion import fuse
from store.generations.catalog import Generation, Recipe
from store.types import Candidates

QUESTION = "How do I open the sluice?"


def cosines(deviation: float, questions: int = 40, count: int = 100) -> list[list[float]]:
    """Cosines of the best chunks for each question, with a known standard deviation."""
    values = np.linspace(-1, 1, count)
    values = 0.5 + values / values.std() * deviation
    return [sorted(map(float, values), reverse=True)] * questions


def test_a_spread_is_relative_to_that_of_minilm() -> None:
    """The spread is that of the best hundred; too few questions or chunks have none."""
    assert relative_spread(cosines(0.082)) == pytest.approx(1.0)
    assert relative_spread(cosines(0.041)) == pytest.approx(0.5)
    assert relative_spread(cosines(0.041, questions=19)) is None
    assert relative_spread(cosines(0.041, count=99)) is None
    assert relative_spread(cosines(0.0)) is None


def test_the_spread_of_a_generation_is_by_model() -> None:
    generation = Generation(1, 1, "live", Recipe("m"), datetime.now(UTC))
    assert spreads_of(generation) == {}
    measured = {"m": {"spread": 0.5, "chunks": 100.0}, "n": {"chunks": 100.0}}
    assert spreads_of(replace(generation, calibration=measured)) == {"m": 0.5}


def candidates(scale: float) -> Candidates:
    """Chunk 1 is best by its vector and chunk 2 by its words; the model crowds its cosines."""
    vector = [(1, 0.80), (3, 0.80 - 0.05 * scale), (2, 0.80 - 0.08 * scale)]
    return Candidates(
        vector={"m": vector}, keyword=[(2, 4.0), (3, 1.0), (1, 0.5)], documents={1: 1, 2: 2, 3: 3}
    )


def test_a_crowded_model_gets_the_order_of_one_with_the_whole_spread() -> None:
    """Without its spread, words would decide; scores of one retriever stay as they are."""

    def order(scale: float, spreads: Mapping[str, float] = {}) -> list[int]:
        fused = fuse(candidates(scale), mode="hybrid", weights=None, limit=3, spreads=spreads)
        return [chunk.chunk_id for chunk in fused]

    assert order(1.0) == [1, 2, 3]
    assert order(0.1) == [2, 3, 1]
    assert order(0.1, spreads={"m": 0.1}) == [1, 2, 3]
    assert order(0.1, spreads={"other": 0.1}) == [2, 3, 1]
    for mode in ("hybrid", "vector"):
        [first, *_] = fuse(candidates(0.1), mode=mode, weights=None, limit=3, spreads={"m": 0.1})
        assert first.vector is not None
        assert first.vector.score == 0.80
    assert first.score == 0.80


def test_confidence_is_the_share_of_unrelated_questions_below() -> None:
    """An answer is weak below 1.5 standard deviations above the mean of unrelated questions."""
    calibration = {"m": unrelated_of([0.1, 0.2, 0.3]), "n": unrelated_of([0.7, 0.8, 0.9])}
    deviation = float(np.std([0.1, 0.2, 0.3]))
    assert confidence_of(calibration, QUESTION, {"m": 0.2}) == pytest.approx(0.5)
    weak, strong = (
        confidence_of(calibration, QUESTION, {"m": 0.2 + times * deviation}) for times in (1.4, 1.6)
    )
    assert weak is not None
    assert strong is not None
    assert weak < WEAK_BELOW < strong
    best = {"m": 0.1, "n": 0.95}
    assert confidence_of(calibration, QUESTION, best) == pytest.approx(
        confidence_of(calibration, QUESTION, {"n": 0.95})
    )
    assert confidence_of(calibration, QUESTION, {"other": 0.9}) is None
    assert confidence_of(calibration, QUESTION, {}) is None
    assert confidence_of(calibration, "open_sluice", {"m": 0.2}) is None
    assert confidence_of({"m": {"chunks": 3.0}}, QUESTION, {"m": 0.2}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (QUESTION, True),
        ("Where is the weir?", True),
        ("weir", False),
        ("open the sluice", False),
        ("getpass.getuser() getbasetemp() _given_basetemp tmp_path", False),
        ("ConftestImportFailure SequenceLike TypeAdapter JsonObject", False),
        ("--collect-only fails on windows with errors", True),
    ],
)
def test_only_sentences_have_a_confidence(text: str, expected: bool) -> None:
    """Names and single words are found by the words, and dissimilar to their chunks."""
    assert is_sentence(text) is expected
