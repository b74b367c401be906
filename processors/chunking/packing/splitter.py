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
from dataclasses import dataclass, replace
from itertools import accumulate

from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Unit

__all__ = ["Bounds", "merged_units", "split", "split_without_rests", "strength"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sizes that decide whether a piece is cut.

    A piece of at most ``enough`` is not cut. A piece of two or more atoms over ``limit`` is always
    cut. Between the two, a piece is cut only if each side keeps ``minimum``. A side keeps
    ``fewest`` atoms, or half of the atoms if there are less.
    """

    enough: int
    limit: int
    minimum: int
    fewest: int = 1


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


def merged_units(lines: Lines, units: Sequence[Unit], bounds: Bounds) -> Iterator[Sequence[Unit]]:
    """Merge small sibling units into runs, split before units with more blank lines above."""
    sums = [0, *accumulate([lines.cost(unit.start, unit.end) for unit in units])]
    if units and (len(units) == 1 or sums[-1] <= bounds.enough):
        yield units
        return
    starts = [unit.start for unit in units]
    strengths = [
        strength(lines.blanks_before(row), digest)
        for row, digest in zip(starts, lines.digests(starts), strict=True)
    ]
    for first, last in split(sums, strengths, 0, len(units), bounds):
        if first < last:
            yield units[first:last]


def split_without_rests(
    sums: Sequence[int], strengths: Sequence[int], bounds: Bounds
) -> list[tuple[int, int]]:
    """Cut all atoms into pieces, and join those of less than ``bounds.fewest`` to a neighbour.

    If no neighbour has room, the two are cut again at another place. Other pieces stay as ``split``
    makes them, so that a joined rest changes no cut farther away.
    """
    pieces = list(split(sums, strengths, 0, len(strengths), replace(bounds, fewest=1)))
    position = 0
    while position < len(pieces):
        start, end = pieces[position]
        if end - start >= bounds.fewest or len(pieces) == 1:
            position += 1
            continue
        beside = [other for other in (position - 1, position + 1) if 0 <= other < len(pieces)]
        other = min(beside, key=lambda index: sums[pieces[index][1]] - sums[pieces[index][0]])
        low = min(position, other)
        first, last = pieces[low][0], pieces[low + 1][1]
        parts = list(split(sums, strengths, first, last, bounds))
        pieces[low : low + 2] = parts
        position = low + len(parts) if len(parts) > 1 else low
    return pieces


def _cut(
    sums: Sequence[int], strengths: Sequence[int], first: int, last: int, bounds: Bounds
) -> int | None:
    cost = sums[last] - sums[first]
    if last - first < 2 or cost <= bounds.enough:
        return None
    fewest = min(bounds.fewest, (last - first) // 2)
    lowest, highest = first + fewest, last - fewest + 1
    low = max(bisect_left(sums, sums[first] + bounds.minimum, first, last), lowest)
    high = min(bisect_right(sums, sums[last] - bounds.minimum, first, last), highest)
    if low >= high:
        if cost <= bounds.limit:
            return None
        low, high = lowest, highest
    cuts = _lasting(sums, first, last, range(low, high), bounds) if fewest > 1 else []
    if cuts:
        middle = (low + high) // 2
        return max(cuts, key=lambda cut: (strengths[cut], -abs(cut - middle)))
    return _strongest(strengths, low, high)


def _lasting(
    sums: Sequence[int], first: int, last: int, cuts: range, bounds: Bounds
) -> Sequence[int]:
    """Cuts of which each side fits, or has atoms for two pieces of ``bounds.fewest``.

    Returns an empty list if all cuts have this quality, as in a text without long lines, or none.
    """
    need = 2 * bounds.fewest
    left_fits = bisect_right(sums, sums[first] + bounds.limit, first, last + 1) - 1
    right_fits = bisect_left(sums, sums[last] - bounds.limit, first, last + 1)
    if left_fits >= min(first + need, cuts.stop) - 1 and right_fits <= max(last - need, cuts.start):
        return []
    return [
        cut
        for cut in cuts
        if (cut <= left_fits or cut - first >= need) and (cut >= right_fits or last - cut >= need)
    ]


def _strongest(strengths: Sequence[int], low: int, high: int) -> int:
    """Find the strongest boundary in ``low..high``; among equals the one nearest the middle.

    Equal boundaries come from copies of one line; halving their run keeps the work at n log n.
    """
    choices = strengths[low:high]
    best = max(choices)
    if choices.count(best) == 1:
        return low + choices.index(best)
    middle = (low + high) // 2
    after = next((i for i in range(middle, high) if strengths[i] == best), high)
    before = next((i for i in range(middle - 1, low - 1, -1) if strengths[i] == best), -1)
    if before < 0 or (after < high and after - middle <= middle - before):
        return after
    return before
