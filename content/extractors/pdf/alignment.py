"""Tables without a grid: rows of short segments whose edges agree."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from content.extractors.pdf.cells import Cell, Table
from content.extractors.pdf.rows import (
    Row,
    Segment,
    in_lines,
    numbers_in,
    rows_of,
)
from content.extractors.pdf.words import Word

__all__ = ["align"]

_MEANINGFUL = re.compile(r"\w|[$€£%\u2013\u2014-]|^\.+$")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_PAGE_NUMBER = re.compile(r"\d{1,4}")
_TERM = re.compile(r"[^\W\d_].*, \d+(?:[-\u2013, ]+\d+)*$|[^\W\d_], [^\W\d_]")
_MARK = re.compile(r"[(\[]?(?:\d{1,3}|\w|[ivx]{1,5})[.)\]]|[•◦▪‣·–—*$>-](?: [$>])?")  # noqa: RUF001
_LEADER = re.compile(r"[.·…_]+")
_MOST_SYMBOLS = 0.15  # of the words; formulas have more
_FEWEST_ROWS = 3
_DIVIDED_ROWS = 0.6  # of the rows, which have at least two segments
_NARROWEST_GAP = 1.5  # points between columns
_CROSSING_ROWS = 0.08  # of the rows, which may cross a gap between columns
_CROSSING_HEAD = 1  # row of a table with many rows
_MANY_ROWS = 6
_SAME_EDGE = 4.0  # points
_ALIGNED = 0.6  # of a column's segments
_FILLED = 0.4  # of the cells
_FULL_WIDTH = 0.8  # of its column: a line of prose fills it, but for the last of a paragraph
_FULL_LINES = 0.5  # of a column's segments
_LONGEST_CELL = (
    80  # letters on average of a column with cells of several lines; paragraphs have more
)


def align(rows: Sequence[Row], page_count: int, *, are_ruled: bool = False) -> Table | None:
    """Return the table that rows form. Returns None if they are prose, formulas or contents.

    Rows of several lines that are not ``are_ruled`` may also be items of a list.
    """
    divided = [row.segments for row in rows]
    if not _has_short_segments(divided):
        return None
    columns = _Columns(divided)
    if not columns.is_table() or columns.is_prose() or columns.is_index():
        return None
    if not are_ruled and columns.is_list():
        return None
    if _is_contents(divided, page_count):
        return None
    return Table(columns.cells)


def _has_short_segments(divided: Sequence[Sequence[Segment]]) -> bool:
    """Test whether most rows are divided, into segments as short as cells."""
    words = [word for segments in divided for segment in segments for word in segment]
    if any(_RIGHT_TO_LEFT.search(word.text) for word in words):
        return False
    if 2 * sum(any(map(str.isalnum, word.text)) for word in words) < len(words):
        return False
    symbols = sum(_MEANINGFUL.search(word.text) is None for word in words)
    if symbols > _MOST_SYMBOLS * len(words):
        return False
    several = [segments for segments in divided if len(segments) > 1]
    if len(several) < max(_FEWEST_ROWS, _DIVIDED_ROWS * len(divided)):
        return False
    if _are_two_long_columns(several):
        return False
    lengths = [len(segment) / _line_count(segment) for segments in several for segment in segments]
    average = statistics.fmean(lengths)
    numbers = sum(numbers_in(segments) for segments in several)
    many_columns = statistics.median(len(segments) for segments in several) >= 3
    return (
        average <= 3
        or (many_columns and average <= 4)
        or (numbers > 0.35 * len(lengths) and average <= 6)
    )


def _are_two_long_columns(divided: Sequence[Sequence[Segment]]) -> bool:
    pairs = [segments for segments in divided if len(segments) == 2]
    if len(pairs) <= 0.7 * len(divided):
        return False
    letters = [
        _letters(segment) / _line_count(segment) for segments in pairs for segment in segments
    ]
    return sum(count > 25 for count in letters) > 0.5 * len(letters)


def _letters(segment: Segment) -> int:
    return sum(len(word.text) for word in segment)


def _line_count(segment: Segment) -> int:
    return len(rows_of(segment)) if segment.is_tall else 1


class _Columns:
    """Columns by the gaps that nearly all divided rows share."""

    def __init__(self, divided: Sequence[Sequence[Segment]]) -> None:
        self._divided = divided
        self._gaps = _gaps([segments for segments in divided if len(segments) > 1])
        self.cells: list[Cell] = []
        self._alone: dict[int, list[Segment]] = defaultdict(list)
        for row, segments in enumerate(divided):
            self._fill(row, segments)

    def _fill(self, row: int, segments: Sequence[Segment]) -> None:
        content: dict[tuple[int, int], list[Word]] = defaultdict(list)
        for segment in segments:
            left, right = segment.edges
            first = bisect_left(self._gaps, left + 1)
            last = max(first, bisect_left(self._gaps, right - 1))
            if first == last:
                self._alone[first].append(segment)
                content[first, first] += segment
            elif len(segment) > 1 and len(self._divided) > 3 and row > 1 and not segment.is_tall:
                # columns that nearly touch: below the header, no cell covers several
                for word in segment:
                    column = bisect_left(self._gaps, word.center)
                    content[column, column].append(word)
            else:
                content[first, last] += segment
        self.cells += (
            Cell(row, row, *columns, in_lines(words)) for columns, words in content.items()
        )

    def is_table(self) -> bool:
        """Test whether two columns keep an edge, and enough cells are filled."""
        count = len(self._gaps) + 1
        if count < 2:
            return False
        filled = len({(cell.first_row, cell.first_column) for cell in self.cells})
        aligned = sum(map(_keeps_an_edge, self._alone.values()))
        return aligned >= 2 and filled >= _FILLED * len(self._divided) * count

    def is_prose(self) -> bool:
        """Test whether two columns are prose, whose lines fill their column's width."""
        test = _is_long if self._are_tall() else _is_prose
        prose = [segments for segments in self._alone.values() if test(segments)]
        letters = sum(_letters(segment) for segments in prose for segment in segments)
        everything = sum(_letters(segment) for segments in self._divided for segment in segments)
        return len(prose) >= 2 and letters > 0.5 * everything

    def is_list(self) -> bool:
        """Test whether two columns are the marks and the paragraphs of a list."""
        filled = [
            segments
            for _, segments in sorted(self._alone.items())
            if len(segments) >= _FILLED * len(self._divided)
        ]
        if len(filled) != 2:
            return False
        marks = sum(_MARK.fullmatch(segment.text) is not None for segment in filled[0])
        return 2 * marks > len(filled[0]) or (self._are_tall() and _is_long(filled[1]))

    def _are_tall(self) -> bool:
        return any(segment.is_tall for segments in self._divided for segment in segments)

    def is_index(self) -> bool:
        """Test whether each column lists terms with pages, as the index of a book does."""
        columns = [segments for segments in self._alone.values() if len(segments) >= _FEWEST_ROWS]
        return all(
            2 * sum(_TERM.search(segment.text) is not None for segment in segments) > len(segments)
            for segments in columns
        )


class _Gap(NamedTuple):
    """Gap from ``start`` to ``end``; fewest rows cross it from ``left`` to ``right``."""

    start: float
    end: float
    left: float
    right: float
    crossing: int

    @property
    def middle(self) -> float:
        """Middle of the part that fewest rows cross."""
        return (self.left + self.right) / 2

    def joined(self, start: float, end: float, crossing: int) -> _Gap:
        """Join the gap with one that begins at its end."""
        if crossing < self.crossing:
            return _Gap(self.start, end, start, end, crossing)
        if crossing == self.crossing and start - self.right < 0.01:
            return self._replace(end=end, right=end)
        return self._replace(end=end)


def _gaps(divided: Sequence[Sequence[Segment]]) -> list[float]:
    """Middles of the gaps between columns, from the left."""
    edges_of = [segment.edges for segments in divided for segment in segments]
    lefts = sorted(left for left, _ in edges_of)
    rights = sorted(right for _, right in edges_of)
    edges = sorted({round(edge, 1) for edge in (*lefts, *rights)})
    most = max(_CROSSING_ROWS * len(divided), _CROSSING_HEAD if len(divided) >= _MANY_ROWS else 0)
    gaps: list[_Gap] = []
    for start, end in pairwise(edges):
        middle = (start + end) / 2
        crossing = bisect_left(lefts, middle) - bisect_right(rights, middle)
        if crossing > most:
            continue
        if gaps and start - gaps[-1].end < 0.01:
            gaps[-1] = gaps[-1].joined(start, end, crossing)
        else:
            gaps.append(_Gap(start, end, start, end, crossing))
    return [gap.middle for gap in gaps if gap.end - gap.start >= _NARROWEST_GAP]


def _keeps_an_edge(segments: Sequence[Segment]) -> bool:
    if len(segments) < _FEWEST_ROWS:
        return False
    measures: tuple[Callable[[Segment], float], ...] = (
        lambda segment: segment.edges[0],
        lambda segment: segment.edges[1],
        lambda segment: sum(segment.edges) / 2,
    )
    for measure in measures:
        positions = sorted(map(measure, segments))
        median = positions[len(positions) // 2]
        near = sum(abs(position - median) <= _SAME_EDGE for position in positions)
        if near >= _ALIGNED * len(positions):
            return True
    return False


def _is_prose(segments: Sequence[Segment]) -> bool:
    if len(segments) < _FEWEST_ROWS:
        return False
    edges = [segment.edges for segment in segments]
    width = max(right for _, right in edges) - min(left for left, _ in edges)
    full = [
        segment
        for segment, (left, right) in zip(segments, edges, strict=True)
        if len(segment) > 1 and right - left >= _FULL_WIDTH * width
    ]
    letters = sum(
        character.isalpha() for segment in full for word in segment for character in word.text
    )
    return (
        len(full) >= _FULL_LINES * len(segments)
        and letters >= 12 * len(full)
        and letters >= 0.7 * sum(map(_letters, full))
    )


def _is_long(segments: Sequence[Segment]) -> bool:
    """Test whether cells of several lines are paragraphs."""
    return bool(segments) and statistics.fmean(map(_letters, segments)) > _LONGEST_CELL


def _is_contents(divided: Sequence[Sequence[Segment]], page_count: int) -> bool:
    """Test for a table of contents: titles, and pages of the document in ascending order."""
    pages: list[int] = []
    for segments in divided:
        words = [word for segment in segments for word in segment]
        while words and _LEADER.fullmatch(words[-1].text):
            words.pop()
        title = "".join(word.text for word in words[:-1])
        if any(map(str.isalpha, title)) and _PAGE_NUMBER.fullmatch(words[-1].text):
            pages.append(int(words[-1].text))
    return (
        len(pages) >= max(_FEWEST_ROWS, 0.8 * len(divided))
        and pages == sorted(pages)
        and pages[0] >= 1
        and pages[-1] <= page_count
        and pages[0] < pages[-1]
    )
