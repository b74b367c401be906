"""Rows of a table whose cells may have several lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from content.extractors.pdf.rows import Row, numbers_in, rows_of
from content.extractors.pdf.words import united
from content.rendition import Box

__all__ = ["FEWEST_RULES", "bands_of"]

_MOST_LINES = 12  # of a row: more are prose
_LOWEST_SHARE = 0.1  # of the gaps between lines, which are no wider than those inside a cell
_MOST_ABOVE = 12  # segments that may be right above another one
_WIDER = 0.2  # of the size of the type, that a gap between rows is wider than one inside a cell
_WIDER_POINTS = 1.2  # the least of it
_EQUAL_SHARE = 0.75  # of the cells: if more hold every line, each line is a row
FEWEST_RULES = 4  # of a table whose rows are ruled
_MOST_EQUAL_LINES = 3  # of two cells beside each other: longer ones are columns of prose


def bands_of(lines: Sequence[Row], rules: Iterable[float] = ()) -> list[Row]:
    """Join the lines of a table that are one row, the highest first.

    Lines belong to one row if no wider gap than between the lines of a cell, and none of the
    ``rules`` at the given heights, stands between them. Where they rather are rows of their own,
    each is one: numbers stand below each other, or all cells have the same number of lines.
    """
    heights = sorted(rules)
    widest = _inner_gap(lines)
    bands: list[list[Row]] = []
    above: Box | None = None
    for line in lines:
        box = line.box
        margin = max(_WIDER_POINTS, _WIDER * line[0].measure)
        is_ruled = above is not None and _between(heights, line[0].middle, bands[-1][-1][0].middle)
        if above is not None and not is_ruled and above.bottom - box.top <= widest + margin:
            bands[-1].append(line)
            above = united(above, box)
        else:
            bands.append([line])
            above = box
    rows: list[Row] = []
    for band in bands:
        is_row = _is_one_row(band, are_ruled=len(heights) >= FEWEST_RULES)
        rows += [_joined(band)] if is_row else band
    return rows


def _joined(band: Sequence[Row]) -> Row:
    return Row.of(word for line in band for word in line)


def _between(heights: Sequence[float], low: float, high: float) -> bool:
    index = bisect_left(heights, low)
    return index < len(heights) and heights[index] < high


def _inner_gap(lines: Sequence[Row]) -> float:
    """Gap between two lines of a cell: a small one among those between lines above each other."""
    gaps: list[float] = []
    above: list[Box] = []
    for line in lines:
        boxes = [segment.box for segment in line.segments]
        for box in boxes:
            nearest = next((other for other in above if _is_above(other, box)), None)
            gaps += () if nearest is None else (nearest.bottom - box.top,)
        above = [*boxes, *above][:_MOST_ABOVE]
    gaps.sort()
    return gaps[int(_LOWEST_SHARE * len(gaps))] if gaps else 0.0


def _is_above(box: Box, other: Box) -> bool:
    return box.left < other.right and box.right > other.left and box.bottom > other.bottom


def _is_one_row(band: Sequence[Row], *, are_ruled: bool) -> bool:
    """Return whether lines are one row, whose cells have different numbers of lines.

    If the rows ``are_ruled``, the cells may have the same number.
    """
    if len(band) == 1:
        return True
    if len(band) > _MOST_LINES:
        return False
    cells = _joined(band).segments
    if len(cells) < max(2, *(len(line.segments) for line in band)):
        return False
    columns = [rows_of(cell) for cell in cells]
    if any(numbers_in(lines) > 1 for lines in columns):
        return False
    full = sum(len(lines) == len(band) for lines in columns)
    if are_ruled or full <= _EQUAL_SHARE * len(columns):
        return True
    if 2 * sum(lines[-1][0].text[0].islower() for lines in columns) > len(columns):
        return True  # most cells end in the middle of a sentence
    return len(columns) == 2 and len(band) <= _MOST_EQUAL_LINES
