"""The budget of a day, and the ledger that it is read from."""

from __future__ import annotations

import pytest

from processors.contexts.budget import Budget, OverBudget
from store.documents.costs import Usage, divide_usage


def test_a_request_reserves_the_most_that_it_can_cost() -> None:
    budget = Budget(1.0, 0.5)
    with budget.reserved(0.4) as first:
        with pytest.raises(OverBudget, match="budget"), budget.reserved(0.2):
            pass
        first.cost_usd = 0.1
    with budget.reserved(0.4):
        pass
    with pytest.raises(OverBudget), budget.reserved(0.001):
        pass


def test_a_failed_request_costs_nothing() -> None:
    budget = Budget(1.0, 0.0)
    for _ in range(3):
        with pytest.raises(ValueError, match="failed"), budget.reserved(0.9):
            raise ValueError("failed")


def test_an_unknown_price_is_allowed_only_without_a_budget() -> None:
    with pytest.raises(OverBudget, match="price"), Budget(1.0, 0.0).reserved(None):
        pass
    with Budget(None, 5.0).reserved(None) as reservation:
        assert reservation.cost_usd == 0.0


def test_the_parts_of_a_usage_add_up_to_it() -> None:
    usage = Usage(2, 100, 11, 7, 0.3)
    parts = divide_usage(usage, {"a": 1, "b": 1, "c": 5})
    assert sum(parts.values(), Usage()) == usage
    assert parts["c"].tokens_in > parts["a"].tokens_in


def test_an_unknown_cost_stays_unknown() -> None:
    unknown = Usage(1, 5, cost_usd=None)
    assert (unknown + Usage(1, 5, cost_usd=0.5)).cost_usd is None
    assert divide_usage(unknown, {"a": 3})["a"].cost_usd is None
