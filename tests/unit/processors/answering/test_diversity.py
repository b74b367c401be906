"""Maximal marginal relevance over stored vectors."""

from __future__ import annotations

import numpy as np
import pytest

from processors.answering.diversity import StoredVector, diversified


def _vector(angle: float, model: int = 1) -> StoredVector:
    return model, np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


@pytest.mark.parametrize(
    ("diversity", "order"),
    [(0.0, "abcd"), (0.1, "abcd"), (0.5, "acbd"), (1.0, "acdb")],
)
def test_a_near_copy_yields_to_something_else(diversity: float, order: str) -> None:
    """``b`` repeats ``a``; the more diversity is asked for, the later it comes."""
    vectors = [_vector(0), _vector(0.01), _vector(1.5), _vector(0.8)]
    assert "".join(diversified("abcd", [1.0, 0.95, 0.8, 0.1], vectors, diversity)) == order


def test_what_cannot_be_compared_counts_as_different() -> None:
    """A chunk without a vector, or of another model, is similar to none."""
    vectors = [_vector(0), _vector(0), None, _vector(0, model=2)]
    assert "".join(diversified("abcd", [1.0, 0.9, 0.8, 0.7], vectors, 0.7)) == "acdb"
    assert diversified("ab", [0.5, 0.5], [None, None], 1.0) == ["a", "b"]
    assert diversified([], [], [], 0.5) == []
