"""Goals of the figures of content."""

from __future__ import annotations

from importlib import import_module

import pytest

from bench.content.registry import MEASUREMENTS, Goal, rows
from bench.figures import Row


@pytest.mark.parametrize(
    ("sign", "figure", "met"),
    [("≥", 0.8, True), ("≥", 0.79, False), ("≤", 0.8, True), ("≤", 0.81, False), ("=", 1, False)],
)
def test_a_figure_is_compared_with_its_limit(sign: str, figure: float, met: bool) -> None:
    goal = Goal("words", "share", sign, 0.8, "words")
    assert goal.row({"share": figure}) == Row("words", figure, f"{sign} 0.8", met)


def test_a_missing_figure_leaves_the_row_out() -> None:
    row = Goal("words", "share", "≥", 0.8, ".txt file").row({"files": 1})
    assert (row.figure, row.met, row.reason) == (None, None, "the corpus has no .txt file")


def test_a_failed_measurement_fails_its_rows() -> None:
    failed = rows("notebook", {}, "the measurement of notebook ended with 1")
    assert [row.met for row in failed] == [False, False]
    assert {row.reason for row in failed} == {"the measurement of notebook ended with 1"}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_each_name_is_a_module_with_figures(name: str) -> None:
    assert callable(import_module(f"bench.content.{name}").figures)
