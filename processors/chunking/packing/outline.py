"""Outline of a document (units, and ranks of rows to cut at), and the sizes of chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["SIZES", "Outline", "Sizes", "Unit", "one_by_one"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of rows (from 0, half open) that belongs together: a function, a section, a turn.

    ``name`` is its own name ("" for rows between named units), ``label`` its part of a header.
    ``expand`` returns the units inside, which cover the same rows. It is None if there are none.
    A unit that is ``alone`` is never merged with its neighbours. ``lead`` is the part of the header
    of a chunk that begins with the unit, if the units around it began before.
    """

    start: int
    end: int
    name: str = ""
    label: str = ""
    expand: Callable[[], Sequence[Unit]] | None = None
    alone: bool = False
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """A document's units in order, covering every non-blank row.

    ``ranks`` returns, for each row from its first argument up to its second, how good a cut right
    before it is (higher is better). It is called only for units that do not fit and cannot be
    expanded.
    """

    units: Sequence[Unit]
    ranks: Callable[[int, int], Sequence[int]]


def one_by_one(rank: Callable[[int], int]) -> Callable[[int, int], Sequence[int]]:
    """Build ``Outline.ranks`` from a function that ranks a single row."""
    return lambda start, end: [rank(row) for row in range(start, end)]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Preferences in tokens; the model's own limit always takes precedence.

    ``merge_tokens``: neighbours are merged while together they are at most this long. A single unit
    (a function, a section) may be longer, up to the limit. ``minimum_tokens``: no cut leaves less
    than this on a side if another cut is possible. ``largest_tokens``: cap of the limit, because
    even a model with a limit of 8,000 tokens retrieves short passages better. ``header_share``:
    part of the limit that a header may take. ``characters_per_token``: bounds a line's cost from
    below, so that text with few tokens (blanks, unknown words) cannot make a chunk of a megabyte.
    """

    merge_tokens: int = 160
    minimum_tokens: int = 24
    largest_tokens: int = 512
    header_share: float = 0.3
    characters_per_token: int = 32


SIZES = Sizes()
