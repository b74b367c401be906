"""Ratchet of the source code's figures: each may only improve, and its limit is lowered with it."""

from __future__ import annotations

import pytest

from tests.figures import FIGURES, Code, Figure

LIMITS = {
    "clauses": 0,
    "archaic_words": 0.1,
    "vague_names": 0.2,
    "gerund_modules": 9,
    "small_modules": 50,
    "store_entries": 14,
    "most_entries": 26,
    "exported_names": 20,
    "settings": 45,
}


@pytest.fixture(scope="module")
def code() -> Code:
    return Code.of_work_tree()


@pytest.mark.parametrize(
    "figure",
    [figure for figure in FIGURES if figure.measure.__name__ in LIMITS],
    ids=lambda figure: figure.measure.__name__,
)
def test_no_figure_is_worse_than_its_limit(code: Code, figure: Figure) -> None:
    assert figure.measure(code) <= LIMITS[figure.measure.__name__], figure.name
