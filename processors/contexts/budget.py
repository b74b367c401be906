"""Daily budget of contexts, kept by reserving the most that each request can cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Budget", "OverBudget", "Reservation"]


class OverBudget(Exception):
    """A request would exceed the budget of the day, or its cost cannot be estimated.

    ``reason`` is ``budget``, or ``price`` if the price of the model is not known.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Reservation:
    """Cost in US dollars of one request: first the most that it can be, then what it was."""

    cost_usd: float


class Budget:
    """Rest of the budget of today, in US dollars.

    Only one process spends at a time, so ``spent_usd`` is current.

    Args:
        limit_usd: the budget of the day. None means no limit.
        spent_usd: known costs of today, of all projects together.
    """

    def __init__(self, limit_usd: float | None, spent_usd: float) -> None:
        self._limit_usd = limit_usd
        self._spent_usd = spent_usd

    def spend(self, cost_usd: float) -> None:
        """Count a cost that no reservation contains."""
        self._spent_usd += cost_usd

    @contextmanager
    def reserved(self, most_usd: float | None) -> Iterator[Reservation]:
        """Reserve the most that the request in the ``with`` block can cost.

        The block sets the actual cost; a request that fails costs nothing. ``most_usd`` is None if
        the price is not known; then the request is allowed only without a limit.

        Raises:
            OverBudget: the request is not allowed.
        """
        if self._limit_usd is not None:
            if most_usd is None:
                raise OverBudget("price")
            if self._spent_usd + most_usd > self._limit_usd:
                raise OverBudget("budget")
        reservation = Reservation(most_usd or 0.0)
        before = reservation.cost_usd
        self._spent_usd += before
        try:
            yield reservation
        except BaseException:
            reservation.cost_usd = 0.0
            raise
        finally:
            self._spent_usd += reservation.cost_usd - before
