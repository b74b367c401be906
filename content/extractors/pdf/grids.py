"""Tables by rulings: edges that touch form a grid, and the words inside fill its cells."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from content.extractors.pdf.cells import Cell, Table
from content.extractors.pdf.rows import Row, numbers_in, rows_of
from content.extractors.pdf.rulings import Edge, joined_edges, near
from content.extractors.pdf.words import Word

__all__ = ["Grid", "fill_grid", "find_grids", "framed_words"]

_TOUCHING = 4.0  # points between edges that meet
_DISTINCT = 3.0  # points between two boundaries
_OVERHANG = 2.0  # points that a word's middle may be outside
_MOST_PAIRS = 400_000
_MOST_CELLS = 20_000
_FEWEST_FILLED = 4
_FILLED_SHARE = 0.3  # of the cells
_BORDER = 10.0  # points: a row or column without words that is narrower is a double border
_FEWEST_DIVIDED = 3  # lines of a cell that frames a part of a table
_DIVIDED_SHARE = 0.6  # of the lines of such a cell
_LEVEL = 2.0  # points between the heights of two lines of one row
_LEVEL_SHARE = 0.8  # of the lines of a part that belongs to another
_EQUAL_SHARE = 0.75  # of a row's cells, which hold the same number of lines
_MANY_LINES = 4  # of such cells, which are rows of their own also without numbers


class Grid(NamedTuple):
    """Boundaries of columns from the left and of rows from the top, and the edges on them."""

    columns: Sequence[float]
    rows: Sequence[float]
    across: Sequence[Edge]
    down: Sequence[Edge]


class _Groups:
    """Disjoint groups of items, which are united two by two."""

    def __init__(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}

    def root(self, item: Hashable) -> Hashable:
        """Return the item that stands for the group."""
        parents = self._parents
        root = item
        while (parent := parents.get(root, root)) != root:
            parents[root] = parents.get(parent, parent)
            root = parent
        return root

    def unite(self, first: Hashable, second: Hashable) -> None:
        """Unite the groups of two items."""
        self._parents[self.root(first)] = self.root(second)


def find_grids(across: Iterable[Edge], down: Iterable[Edge]) -> tuple[list[Grid], list[Edge]]:
    """Return the grids that edges form, and the horizontal edges that belong to none."""
    horizontal = joined_edges(across)
    vertical = joined_edges(down)
    if len(horizontal) < 2 or len(vertical) < 2 or len(horizontal) * len(vertical) > _MOST_PAIRS:
        return [], horizontal
    groups = _Groups()
    for edge in horizontal:
        for other in near(vertical, edge.start - _TOUCHING, edge.end + _TOUCHING):
            if other.start - _TOUCHING <= edge.at <= other.end + _TOUCHING:
                groups.unite((0, edge), (1, other))
    members: dict[Hashable, tuple[list[Edge], list[Edge]]] = defaultdict(lambda: ([], []))
    for edge in horizontal:
        members[groups.root((0, edge))][0].append(edge)
    for edge in vertical:
        members[groups.root((1, edge))][1].append(edge)
    grids: list[Grid] = []
    free: list[Edge] = []
    for lines_across, lines_down in members.values():
        columns = _boundaries(edge.at for edge in lines_down)
        rows = _boundaries(edge.at for edge in lines_across)[::-1]
        count = (len(columns) - 1) * (len(rows) - 1)
        if len(columns) >= 2 and len(rows) >= 2 and 2 <= count <= _MOST_CELLS:
            grids.append(Grid(columns, rows, lines_across, lines_down))
        else:
            free += lines_across
    return grids, free


def _boundaries(positions: Iterable[float]) -> list[float]:
    distinct: list[float] = []
    for position in sorted(positions):
        if not distinct or position - distinct[-1] > _DISTINCT:
            distinct.append(position)
    return distinct


def fill_grid(grid: Grid, words: Iterable[Word]) -> Table | None:
    """Return the table of a grid. Returns None if too few of its cells hold words."""
    inside = [word for word in words if _contains(grid, word)]
    if not inside:
        return None
    groups = _merged(grid)
    areas = _areas(grid, groups)
    cells = _cells(grid, groups, areas, inside)
    if not _is_filled(cells, len(_counted(grid, groups, inside))):
        return None
    if _is_ruled_by_columns_only(grid, inside):
        cells = _cells_by_lines(grid, inside)
    return Table(cells)


def _counted(grid: Grid, groups: _Groups, words: Iterable[Word]) -> set[Hashable]:
    """Cells apart from those in the narrow rows and columns that double borders make."""
    rows = {row for row, (top, bottom) in enumerate(pairwise(grid.rows)) if top - bottom >= _BORDER}
    columns = {
        column
        for column, (left, right) in enumerate(pairwise(grid.columns))
        if right - left >= _BORDER
    }
    for word in words:
        rows.add(_row_of(grid, word))
        columns.add(_column_of(grid, word))
    return {groups.root(position) for position in product(rows, columns)}


def _contains(grid: Grid, word: Word) -> bool:
    return (
        grid.columns[0] - _OVERHANG <= word.center <= grid.columns[-1] + _OVERHANG
        and grid.rows[-1] - _OVERHANG <= word.middle <= grid.rows[0] + _OVERHANG
    )


def _is_filled(cells: Sequence[Cell], areas: int) -> bool:
    """Test for a table: the grid of a chart has few words, and a pattern has no letters."""
    lettered = sum(any(map(str.isalnum, cell.text)) for cell in cells)
    return (
        len(cells) >= max(_FEWEST_FILLED, _FILLED_SHARE * areas)
        and 2 * lettered >= len(cells)
        and len({cell.first_row for cell in cells}) >= 2
        and len({cell.first_column for cell in cells}) >= 2
    )


def _column_of(grid: Grid, word: Word) -> int:
    return min(max(bisect_right(grid.columns, word.center) - 1, 0), len(grid.columns) - 2)


def _row_of(grid: Grid, word: Word) -> int:
    above = bisect_right(grid.rows, -word.middle, key=lambda position: -position)  # they descend
    return min(max(above - 1, 0), len(grid.rows) - 2)


class _Area(NamedTuple):
    """Rows and columns of one cell."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int

    @property
    def is_in_one_row(self) -> bool:
        """True unless an area was merged over several rows."""
        return self.first_row == self.last_row


def _cells(
    grid: Grid, groups: _Groups, areas: Mapping[Hashable, _Area], words: Sequence[Word]
) -> list[Cell]:
    """Fill the cells; a row whose cells hold the same number of lines is that many rows."""
    content: dict[Hashable, list[Word]] = defaultdict(list)
    for word in words:
        content[groups.root((_row_of(grid, word), _column_of(grid, word)))].append(word)
    filled = [(areas[root], rows_of(inside)) for root, inside in content.items()]
    levels = _levels(filled)
    starts = [0]
    for row in range(len(grid.rows) - 1):
        starts.append(starts[-1] + len(levels.get(row, (0.0,))))
    cells: list[Cell] = []
    for area, lines in filled:
        columns = (area.first_column, area.last_column)
        start = starts[area.first_row]
        if area.is_in_one_row and area.first_row in levels:
            for level, inside in _by_level(lines, levels[area.first_row]).items():
                cells.append(Cell(start + level, start + level, *columns, inside))
        else:
            inside = [word for line in lines for word in line]
            cells.append(Cell(start, starts[area.last_row + 1] - 1, *columns, inside))
    return cells


def _merged(grid: Grid) -> _Groups:
    """Unite neighbouring cells that no edge divides."""
    groups = _Groups()
    down = sorted(grid.down)
    across = sorted(grid.across)
    beside = [near(down, x - _TOUCHING, x + _TOUCHING) for x in grid.columns]
    below = [near(across, y - _TOUCHING, y + _TOUCHING) for y in grid.rows]
    for row in range(len(grid.rows) - 1):
        middle = (grid.rows[row] + grid.rows[row + 1]) / 2
        for column in range(len(grid.columns) - 1):
            center = (grid.columns[column] + grid.columns[column + 1]) / 2
            if column + 2 < len(grid.columns) and not _crosses(beside[column + 1], middle):
                groups.unite((row, column + 1), (row, column))
            if row + 2 < len(grid.rows) and not _crosses(below[row + 1], center):
                groups.unite((row + 1, column), (row, column))
    return groups


def _crosses(edges: Iterable[Edge], position: float) -> bool:
    return any(edge.start - 1 <= position <= edge.end + 1 for edge in edges)


def _areas(grid: Grid, groups: _Groups) -> Mapping[Hashable, _Area]:
    areas: dict[Hashable, _Area] = {}
    for row in range(len(grid.rows) - 1):
        for column in range(len(grid.columns) - 1):
            root = groups.root((row, column))
            area = areas.get(root, _Area(row, row, column, column))
            areas[root] = _Area(
                area.first_row,  # rows come in order
                row,
                min(area.first_column, column),
                max(area.last_column, column),
            )
    return areas


def _levels(filled: Sequence[tuple[_Area, Sequence[Row]]]) -> Mapping[int, Sequence[float]]:
    """Heights of the lines, by row, of the rows that are several rows without rulings."""
    by_row: dict[int, list[Sequence[Row]]] = defaultdict(list)
    for area, lines in filled:
        if area.is_in_one_row:
            by_row[area.first_row].append(lines)
    levels: dict[int, Sequence[float]] = {}
    for row, cells in by_row.items():
        count, cells_with_count = Counter(map(len, cells)).most_common(1)[0]
        are_equal = len(cells) >= 3 and cells_with_count >= _EQUAL_SHARE * len(cells)
        lists = sum(numbers_in(lines) > 1 for lines in cells)
        if are_equal and count >= 2 and (count >= _MANY_LINES or 3 * lists >= len(cells)):
            heights = _boundaries(_height(line) for lines in cells for line in lines)
            levels[row] = heights[::-1][:count]
    return levels


def _by_level(lines: Iterable[Row], levels: Sequence[float]) -> Mapping[int, list[Word]]:
    """Words by the index of the level that their line is nearest to."""
    words: dict[int, list[Word]] = defaultdict(list)
    for line in lines:
        height = _height(line)
        level = min(range(len(levels)), key=lambda index: abs(levels[index] - height))
        words[level] += line
    return words


def _height(row: Row) -> float:
    return sum(word.middle for word in row) / len(row)


def _is_ruled_by_columns_only(grid: Grid, words: Sequence[Word]) -> bool:
    """True for few rows whose cells hold many lines."""
    rows = len(grid.rows) - 1
    return rows <= 3 and len(grid.columns) > 2 and len(rows_of(words)) > 4 * rows


def _cells_by_lines(grid: Grid, words: Sequence[Word]) -> list[Cell]:
    """Return the cells of a grid that rules only its columns: each line of words is a row."""
    cells: list[Cell] = []
    for row, line in enumerate(rows_of(words)):
        by_column: dict[int, list[Word]] = defaultdict(list)
        for word in line:
            by_column[_column_of(grid, word)].append(word)
        cells += (Cell(row, row, column, column, inside) for column, inside in by_column.items())
    return cells


def framed_words(grid: Grid, words: Iterable[Word]) -> Sequence[Word]:
    """Return the words of the largest part of a grid that only frames a table, else none.

    Such a grid has cells whose lines are divided by wide gaps. Parts of the frame whose lines
    stand at the same heights belong together; a chart beside a table does not.
    """
    inside = [word for word in words if _contains(grid, word)]
    groups = _merged(grid)
    areas = _areas(grid, groups)
    content: dict[Hashable, list[Word]] = defaultdict(list)
    for word in inside:
        content[groups.root((_row_of(grid, word), _column_of(grid, word)))].append(word)
    framing = 0
    parts: dict[tuple[int, int], list[Word]] = defaultdict(list)
    for root, own in content.items():
        rows = rows_of(own)
        divided = sum(row.is_divided for row in rows)
        if divided >= _FEWEST_DIVIDED and divided >= _DIVIDED_SHARE * len(rows):
            framing += len(own)
        parts[areas[root].first_column, areas[root].last_column] += own
    if 2 * framing <= len(inside):
        return ()
    largest = max(parts.values(), key=len)
    heights = _boundaries(_height(row) for row in rows_of(largest))
    framed: list[Word] = []
    for part in parts.values():
        own_heights = [_height(row) for row in rows_of(part)]
        level = sum(_is_near(heights, height) for height in own_heights)
        if part is largest or level >= _LEVEL_SHARE * len(own_heights):
            framed += part
    return framed


def _is_near(heights: Sequence[float], height: float) -> bool:
    index = bisect_right(heights, height - _LEVEL)
    return index < len(heights) and heights[index] <= height + _LEVEL
