"""How fast vectors come in, as upkeep sees it."""

from __future__ import annotations

from store.search.vector_indexes import Inflow


def test_inflow_is_what_came_in_since_the_last_look() -> None:
    """Per second and model; a model that wasn't there had none."""
    inflow = Inflow()
    assert inflow.per_second(1, 1, {1: 500}, at=10.0) == {1: 0.0}, "nobody knows yet"
    assert inflow.per_second(1, 1, {1: 700, 2: 10}, at=12.0) == {1: 100.0, 2: 5.0}
    assert inflow.per_second(1, 1, {1: 600, 2: 10}, at=13.0) == {1: -100.0, 2: 0.0}


def test_projects_and_generations_are_told_apart() -> None:
    """The vectors of a generation that was switched to were there before."""
    inflow = Inflow()
    inflow.per_second(1, 1, {1: 5}, at=10.0)
    assert inflow.per_second(2, 2, {1: 9_000}, at=11.0) == {1: 0.0}
    assert inflow.per_second(1, 3, {1: 9_000}, at=12.0) == {1: 0.0}
    assert inflow.per_second(1, 3, {1: 9_100}, at=13.0) == {1: 100.0}
