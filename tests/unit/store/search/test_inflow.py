"""Inflow of vectors, as maintenance measures it."""

from __future__ import annotations

from store.search.vector_indexes import Inflow


def test_inflow_is_what_came_in_since_the_last_look() -> None:
    """The inflow is given per second and model; a new model counts from 0."""
    inflow = Inflow()
    assert inflow.per_second(1, 1, {1: 500}, at=10.0) == {1: 0.0}, "there is no earlier value"
    assert inflow.per_second(1, 1, {1: 700, 2: 10}, at=12.0) == {1: 100.0, 2: 5.0}
    assert inflow.per_second(1, 1, {1: 600, 2: 10}, at=13.0) == {1: -100.0, 2: 0.0}


def test_projects_and_generations_are_distinguished() -> None:
    """The inflow of another project or generation starts at 0."""
    inflow = Inflow()
    inflow.per_second(1, 1, {1: 5}, at=10.0)
    assert inflow.per_second(2, 2, {1: 9_000}, at=11.0) == {1: 0.0}
    assert inflow.per_second(1, 3, {1: 9_000}, at=12.0) == {1: 0.0}
    assert inflow.per_second(1, 3, {1: 9_100}, at=13.0) == {1: 100.0}
