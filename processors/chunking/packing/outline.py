"""Outline of a document (units, and ranks of rows to cut at), and the sizes of chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["DEEPEST", "SIZES", "Block", "Outline", "Piece", "Sizes", "Unit", "one_by_one"]


DEEPEST = 12
"""Named units around a unit that is cut by rows instead of being expanded."""


class Unit(NamedTuple):
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


class Block(NamedTuple):
    """A fence or a table: rows (from 0, half open) that are cut only if they do not fit.

    A part that begins below the first row continues the block. It is shown under ``opening``, the
    first ``head`` rows, and ``label`` becomes part of its header. A part without the last row, or
    of a block that is ``unclosed``, is shown above ``closing``.
    """

    start: int
    end: int
    head: int = 0
    opening: str = ""
    closing: str = ""
    label: str = ""
    unclosed: bool = False


class Piece(NamedTuple):
    """Rows that become a chunk, the units around them, and the named units inside."""

    start: int
    end: int
    owners: tuple[Unit, ...]
    inside: tuple[Unit, ...] = ()

    @property
    def lead(self) -> str:
        """Lead of the unit that begins with the piece."""
        units = (*self.owners, *self.inside)
        return next((unit.lead for unit in units if unit.start == self.start and unit.lead), "")


@dataclass(frozen=True, slots=True)
class Outline:
    """A document's units in order, covering every non-blank row.

    ``ranks`` returns, for each of some rows in order, how good a cut right before it is (higher is
    better). It is called only for units that do not fit and cannot be expanded. ``blocks`` are in
    order and do not overlap. In ``prose``, text outside of named units that does not fit is cut to
    the size of merging, and any longer line outside of blocks into sentences. A run of less than
    ``fewest_lines`` lines that are not blank is joined to its neighbour.
    """

    units: Sequence[Unit]
    ranks: Callable[[Sequence[int]], Sequence[int]]
    blocks: Sequence[Block] = ()
    prose: bool = False
    fewest_lines: int = 1


def one_by_one(rank: Callable[[int], int]) -> Callable[[Sequence[int]], Sequence[int]]:
    """Build ``Outline.ranks`` from a function that ranks a single row."""
    return lambda rows: [rank(row) for row in rows]


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
