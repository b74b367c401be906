"""What a test counts, to be printed when the run is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

__all__ = ["Tell"]

Tell = Callable[[str, Counter[str]], None]
"""Told what was tried, and how often each thing became of it."""
