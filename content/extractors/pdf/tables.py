"""Tables of a page, by rulings first, then by alignment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from content.extractors.pdf.alignment import align
from content.extractors.pdf.bands import FEWEST_RULES, bands_of
from content.extractors.pdf.cells import Table
from content.extractors.pdf.grids import Grid, fill_grid, find_grids, framed_words
from content.extractors.pdf.rows import Row, box_of, rows_of
from content.extractors.pdf.rulings import Edge, Rulings, joined_edges
from content.extractors.pdf.words import Word

__all__ = ["find_tables"]

MOST_WORDS = 20_000  # of a page in which tables are looked for
MOST_GRIDS = 300  # of a page
_SHORTEST_RULE = 80.0  # points
_SAME_WIDTH = 6.0  # points
_OVERHANG = 3.0  # points that a word's middle may be beside a rule
_HIGHEST_HEAD = 1.5  # of the size of the type: middle of a head above the rules
_FEWEST_ROWS = 3
_FEWEST_DIVIDED = 2  # lines; the others may be lines of cells
_PARAGRAPH_GAP = 2.2  # of the size of the type: a wider gap ends a table
_LONGEST_CAPTION = 60  # characters of an undivided row inside a table


def find_tables(words: Sequence[Word], rulings: Rulings, page_count: int) -> list[Table]:
    """Return the tables of a page, without overlap. ``page_count`` is the document's."""
    words = [word for word in words if not word.aside]
    if len(words) > MOST_WORDS:
        return []
    search = _Search(words, page_count)
    grids, free = find_grids(rulings.across, rulings.down)
    for grid in grids[:MOST_GRIDS]:
        search.in_grid(grid)
    search.between_rules(free)
    search.by_alignment()
    return search.tables


class _Search:
    """Search on one page: each table takes its words out of it."""

    def __init__(self, words: Sequence[Word], page_count: int) -> None:
        self.words = words
        self.tables: list[Table] = []
        self._page_count = page_count

    def keep(self, table: Table | None) -> None:
        """Keep a table, if there is one."""
        if table is not None:
            self.tables.append(table)
            taken = {word.number for word in table.words}
            self.words = [word for word in self.words if word.number not in taken]

    def in_grid(self, grid: Grid) -> None:
        """Find the table whose cells a grid rules, or that the grid only frames."""
        framed = framed_words(grid, self.words)
        table = self._aligned(framed) if framed else None
        self.keep(table or fill_grid(grid, self.words))

    def between_rules(self, edges: Iterable[Edge]) -> None:
        """Find tables between horizontal rules of one width."""
        groups: dict[tuple[int, int], list[Edge]] = defaultdict(list)
        for edge in joined_edges(edges):
            if edge.end - edge.start > _SHORTEST_RULE:
                width = (round(edge.start / _SAME_WIDTH), round(edge.end / _SAME_WIDTH))
                groups[width].append(edge)
        several = [rules for rules in groups.values() if len(rules) > 1]
        for rules in several[:MOST_GRIDS]:
            self._between(rules)

    def _between(self, rules: Sequence[Edge]) -> None:
        left, right = rules[0].start - _OVERHANG, rules[0].end + _OVERHANG
        bottom = min(rule.at for rule in rules) - 1
        top = max(rule.at for rule in rules) + 1
        inside = [
            word
            for word in self.words
            if left <= word.center <= right and bottom <= word.middle <= top
        ]
        if inside:
            words = [*self._head(top, inside), *inside]
            self.keep(self._aligned(words, [rule.at for rule in rules]))

    def _head(self, bottom: float, inside: Sequence[Word]) -> Sequence[Word]:
        """Return the line right above the highest rule, if it is divided as a table's head is."""
        around = box_of(inside)
        left, right = around.left - _OVERHANG, around.right + _OVERHANG
        size = inside[0].measure
        above = [
            word for word in self.words if bottom < word.middle < bottom + _HIGHEST_HEAD * size
        ]
        if not above:
            return ()
        line = rows_of(above)[-1]
        within = all(left <= word.center <= right for word in line)
        return line if within and line.is_divided else ()

    def _aligned(self, words: Sequence[Word], rules: Sequence[float] = ()) -> Table | None:
        """Return the table of some words: with rows of several lines, else by line."""
        lines = rows_of(words)
        bands = bands_of(lines, rules)
        are_ruled = len(rules) >= FEWEST_RULES
        if any(band.is_tall for band in bands):
            table = align(bands, self._page_count, are_ruled=are_ruled)
        else:
            table = None
        return table or align(lines, self._page_count)

    def by_alignment(self) -> None:
        """Find tables in consecutive rows that are divided by gaps."""
        lines = rows_of(self.words)
        if sum(line.is_divided for line in lines) < _FEWEST_DIVIDED:
            return
        bands = bands_of(lines)
        if len(bands) < len(lines):
            words = self.words
            for run in _runs(bands):
                if any(row.is_tall for row in run):
                    self._end(run)
            if self.words is not words:
                lines = rows_of(self.words)
        for run in _runs(lines):
            self._end(run)

    def _end(self, run: Sequence[Row]) -> None:
        """Keep the rows of a run if they are a table, without undivided rows at both ends."""
        divided = [position for position, row in enumerate(run) if row.is_divided]
        if not divided:
            return
        rows = run[divided[0] : divided[-1] + 1]
        if len(rows) >= _FEWEST_ROWS:
            self.keep(align(rows, self._page_count))


def _runs(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield consecutive rows that are divided by gaps, with single undivided ones between."""
    run: list[Row] = []
    captions = 0  # undivided rows since the last divided one
    for row in rows:
        if run and _gap(run[-1], row) > _PARAGRAPH_GAP * max(row[0].size, 6.0):
            yield run
            run, captions = [], 0
        if row.is_divided:
            run.append(row)
            captions = 0
        elif run and not captions and sum(len(word.text) for word in row) < _LONGEST_CAPTION:
            run.append(row)
            captions = 1
        else:
            yield run
            run, captions = [], 0
    yield run


def _gap(above: Row, below: Row) -> float:
    if above.is_tall or below.is_tall:
        return above.box.bottom - below.box.top
    return above[0].bottom - below[0].top
