"""Splitting of a run of atoms so that each piece fits, and so that an edit moves few cuts.

A run is cut at its strongest boundary, then each half at its own, until every piece fits. The
strength of a boundary depends only on the text next to it, and the decision to cut a piece depends
only on that piece. So an edit can change the piece that contains it, and seldom a neighbour, while
a greedy cut from the top would shift every piece below. (The tree of cuts is a treap, Aragon and
Seidel 1989; cuts chosen by content are known from content-defined chunking, Muthitacharoen et al.
2001.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Bounds", "split", "strength"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sizes that decide whether a piece is cut.

    A piece of at most ``enough`` is not cut. A piece of two or more atoms over ``limit`` is always
    cut. Between the two, a piece is cut only if each side keeps ``minimum``.
    """

    enough: int
    limit: int
    minimum: int


def strength(rank: int, digest: int) -> int:
    """Strength of a boundary: by rank (higher is stronger), then by 32 bits of what follows it."""
    return rank << 32 | digest


def split(
    sums: Sequence[int], strengths: Sequence[int], start: int, end: int, bounds: Bounds
) -> Iterator[tuple[int, int]]:
    """Cut the atoms ``start..end`` into pieces, in order.

    ``sums`` are the running costs (one more than atoms); ``strengths[i]`` belongs to the boundary
    before atom ``i``. A piece is over ``bounds.limit`` only if it is a single atom.
    """
    pending = [(start, end)]
    while pending:
        first, last = pending.pop()
        cut = _cut(sums, strengths, first, last, bounds)
        if cut is None:
            yield first, last
        else:
            pending.append((cut, last))
            pending.append((first, cut))


def _cut(
    sums: Sequence[int], strengths: Sequence[int], first: int, last: int, bounds: Bounds
) -> int | None:
    cost = sums[last] - sums[first]
    if last - first < 2 or cost <= bounds.enough:
        return None
    low = max(bisect_left(sums, sums[first] + bounds.minimum, first, last), first + 1)
    high = min(bisect_right(sums, sums[last] - bounds.minimum, first, last), last)
    if low < high:
        return _strongest(strengths, low, high)
    if cost <= bounds.limit:
        return None
    return _strongest(strengths, first + 1, last)


def _strongest(strengths: Sequence[int], low: int, high: int) -> int:
    """Find the strongest boundary in ``low..high``; among equals the one nearest the middle.

    Equal boundaries come from copies of one line; halving their run keeps the work at n log n.
    """
    best = max(strengths[low:high])
    middle = (low + high) // 2
    after = next((i for i in range(middle, high) if strengths[i] == best), high)
    before = next((i for i in range(middle - 1, low - 1, -1) if strengths[i] == best), -1)
    if before < 0 or (after < high and after - middle <= middle - before):
        return after
    return before
