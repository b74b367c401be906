"""What every chunker says of a document: its units, and where one that is too big may be cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Outline", "Unit", "one_by_one"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of rows (from 0, half open) that belongs together: a function, a section, a turn.

    ``name`` is its own name ("" for what lies between named units), ``label`` its part of a header.
    ``expand`` gives the units inside, covering the same rows; None if there are none.
    """

    start: int
    end: int
    name: str = ""
    label: str = ""
    expand: Callable[[], Sequence[Unit]] | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """A document's units in order, covering every non-blank row.

    ``ranks`` tells how good a place to cut is right before each of some rows, from the first up to
    the second (higher is better); it is asked only for units that don't fit and can't be expanded.
    """

    units: Sequence[Unit]
    ranks: Callable[[int, int], Sequence[int]]


def one_by_one(rank: Callable[[int], int]) -> Callable[[int, int], Sequence[int]]:
    """Ranks of rows each of which is looked at by itself."""
    return lambda start, end: [rank(row) for row in range(start, end)]
