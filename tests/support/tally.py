"""Tallies of tests, printed at the end of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

__all__ = ["Record"]

Record = Callable[[str, Counter[str]], None]
"""Callback with a kind of input and the number of each result."""
