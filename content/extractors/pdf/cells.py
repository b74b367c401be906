"""Cells of a table, and its rows as lines of Markdown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from content.extractors.pdf.rows import box_of
from content.extractors.pdf.words import Word, joined_text
from content.rendition import Box

__all__ = ["DIVIDER", "Cell", "Table", "TableRow"]

MOST_COLUMNS = 200
DIVIDER = re.compile(r"\|(?: --- \|)+")
"""Line below the header of a table."""
_SPECIAL = re.compile(r"([\\|])")


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell over rows and columns, which count from 0, both ends included; it holds words."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int
    words: Sequence[Word]

    @property
    def text(self) -> str:
        """Words of the cell, joined."""
        return joined_text(self.words)


@dataclass(frozen=True, slots=True)
class TableRow:
    """Line of Markdown, and the box around its words."""

    text: str
    box: Box


@dataclass(frozen=True, slots=True)
class Table:
    """Cells that hold words, in any order."""

    cells: Sequence[Cell]

    @property
    def words(self) -> Sequence[Word]:
        """Words of all cells."""
        return [word for cell in self.cells for word in cell.words]

    def rows(self) -> list[TableRow]:
        """Lines of Markdown, the second of which divides the header from the rows.

        A cell over several rows or columns stands in its first one. Columns that hold no words are
        left out.
        """
        by_row: dict[int, list[Cell]] = defaultdict(list)
        for cell in self.cells:
            by_row[cell.first_row].append(cell)
        filled = sorted({cell.first_column for cell in self.cells})[:MOST_COLUMNS]
        columns = {column: index for index, column in enumerate(filled)}
        rows = [self._row(by_row[row], columns) for row in sorted(by_row)]
        divider = TableRow("|" + " --- |" * len(columns), rows[0].box)
        return [rows[0], divider, *rows[1:]]

    def _row(self, cells: Sequence[Cell], columns: dict[int, int]) -> TableRow:
        texts: list[list[str]] = [[] for _ in columns]
        last = len(columns) - 1
        for cell in sorted(cells, key=lambda cell: cell.first_column):
            column = columns.get(cell.first_column, last)
            texts[column].append(_SPECIAL.sub(r"\\\1", cell.text))
        words = [word for cell in cells for word in cell.words]
        return TableRow(f"| {' | '.join(' '.join(text) for text in texts)} |", box_of(words))
