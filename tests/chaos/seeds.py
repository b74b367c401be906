"""Seeds of the chaos tests."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["SEEDS_VARIABLE", "count_of", "seeds", "size"]

SEEDS_VARIABLE = "HEADRACE_TEST_SEEDS"


def seeds(default: int = 1) -> Sequence[int]:
    """``default`` seeds from 0 on, or those of the environment: ``100`` of them, or ``17-18``."""
    first, dash, last = os.environ.get(SEEDS_VARIABLE, str(default)).partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def size(default: int, thorough: int) -> int:
    """``thorough`` if the environment names the seeds, as `make chaos` does; else ``default``."""
    return thorough if SEEDS_VARIABLE in os.environ else default


def count_of(variable: str, default: int) -> int:
    """Number from the environment, or the default."""
    return int(os.environ.get(variable, default))
