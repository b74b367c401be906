"""Extraction of sheets: their blocks, as Markdown tables or as lines of ``column: value``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from content.extractors.sheets.cells import (
    MOST_CELLS,
    Grid,
    Row,
    column_letters,
    range_name,
    too_many_cells,
)
from content.extractors.sheets.separated import read_separated
from content.extractors.sheets.workbooks import is_workbook, read_workbook
from content.extractors.texts import single_line, table_row, table_rule
from content.extractors.writer import RenditionWriter
from content.rendition import Place, Rendition
from runtime.errors import LimitExceeded

__all__ = ["extract"]

MOST_COLUMNS = 16_384
_WIDE_ROW = 600
"""Characters of a row above which it becomes lines of ``column: value``."""
_WIDE_HEADER = 240
"""Characters of the names of all columns above which every row becomes such lines."""
_COLUMN_CHARACTERS = 80
_HEADER_ROWS = 10
"""Rows of a block that may be its header."""
_VALUE = re.compile(
    r"[-+(]?\s?[$€£¥]?\s?[-+]?\d[\d.,\s'\u2019]*(?:[eE][-+]?\d+)?\s?[%€$£)]?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]\d.*)?"
    r"|\d{1,3}:\d{2}(?::\d{2})?"
    r"|TRUE|FALSE",
    re.IGNORECASE,
)
"""A number, an amount of money, a percentage, a date, a time or a truth value."""
_YEAR = re.compile(r"(?:19|20)\d\d")


def extract(raw: bytes) -> Rendition:
    """Extract a workbook, or a file of separated values if the bytes are not a workbook.

    Raises:
        Encrypted: the workbook has a password.
        LegacyFormat: the bytes are an Office file from before 2007 that is not a workbook.
        Damaged: the bytes can't be read as their format.
        LimitExceeded: there are more than 200,000 cells, 16,384 columns or 8 MiB of text.
    """
    grids = read_workbook(raw) if is_workbook(raw) else [Grid("", read_separated(raw))]
    writer = RenditionWriter()
    cells = 0
    for grid in grids:
        for rows in _blocks(grid.rows):
            cells += sum(len(row.cells) - row.cells.count("") for row in rows)
            if cells > MOST_CELLS:
                raise too_many_cells()
            _Block(grid, rows).write(writer)
    return writer.rendition(None, () if cells else ("the sheets have no cells with a value",))


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the runs of rows between empty rows, which may also be left out."""
    block: list[Row] = []
    cells = 0
    for row in rows:
        if len(row.cells) > MOST_COLUMNS:
            raise LimitExceeded(
                f"row {row.number:,} has more than {MOST_COLUMNS:,} columns",
                "publish the data as documents of their own",
            )
        if not any(row.cells):
            continue
        if block and row.number > block[-1].number + 1:
            yield block
            block = []
        block.append(row)
        cells += len(row.cells) - row.cells.count("")
        if cells > MOST_CELLS:
            raise too_many_cells()
    if block:
        yield block


class _Block:
    """Run of rows, without the empty columns beside them."""

    def __init__(self, grid: Grid, rows: Sequence[Row]) -> None:
        firsts, ends = zip(*(_filled(row.cells) for row in rows), strict=True)
        first, end = min(firsts), max(ends)
        self._grid = grid
        self._rows = rows
        self._cells = [_padded(row.cells[first:end], end - first) for row in rows]
        self._left = grid.left + first
        self._right = grid.left + end - 1
        header = _header(self._cells)
        self._captions = 0 if header is None else header
        self._has_header = header is not None
        names = [] if header is None else self._cells[header]
        self._names = [single_line(name, _COLUMN_CHARACTERS) for name in names]

    def write(self, writer: RenditionWriter) -> None:
        columns = " | ".join(filter(None, self._names))
        wide = len(columns) > _WIDE_HEADER
        parts = (self._grid.name, "" if wide else columns)
        label = " > ".join(filter(None, parts)) or "rows"
        writer.begin(1, self._grid.name or label, label=label)
        start = self._captions + self._has_header
        if self._grid.name:
            writer.heading(1, self._grid.name, self._place(0, max(start, 1) - 1))
        for index in range(self._captions):
            writer.write(_caption(self._cells[index]), self._place(index, index))
        if self._has_header and not wide:
            self._write_header(writer)
        elif self._grid.name:
            writer.blank()
        for index in range(start, len(self._rows)):
            self._write_row(writer, index, wide=wide)

    def _write_header(self, writer: RenditionWriter) -> None:
        place = self._place(self._captions, self._captions)
        if self._grid.name or self._captions:
            writer.blank()
        writer.write(table_row(self._cells[self._captions]), place)
        writer.write(table_rule(len(self._names)), place)

    def _write_row(self, writer: RenditionWriter, index: int, *, wide: bool) -> None:
        cells = self._cells[index]
        place = self._place(index, index)
        row = table_row(cells) if len(cells) > 1 else cells[0]
        if len(cells) == 1 or (len(row) <= _WIDE_ROW and not wide):
            writer.write(row, place)
            return
        # blank lines on both sides keep the lines of a row together
        writer.blank()
        names = self._names or [""] * len(cells)
        for offset, (name, cell) in enumerate(zip(names, cells, strict=True)):
            if cell:
                writer.write(f"{name or column_letters(self._left + offset)}: {cell}", place)
        writer.blank()

    def _place(self, first: int, last: int) -> Place:
        """Return the place of rows of the block, by their indexes."""
        top, bottom = self._rows[first], self._rows[last]
        return Place(
            page=self._grid.index,
            fragment=range_name(
                self._grid.name, self._left, top.number, self._right, bottom.number
            ),
            lines=(top.lines[0], bottom.lines[1]) if top.lines and bottom.lines else None,
        )


def _filled(cells: Sequence[str]) -> tuple[int, int]:
    """Return the index of the first filled cell, and that after the last."""
    first = next(index for index, cell in enumerate(cells) if cell)
    end = next(index for index in range(len(cells), 0, -1) if cells[index - 1])
    return first, end


def _padded(cells: Sequence[str], width: int) -> Sequence[str]:
    return [*cells, *[""] * (width - len(cells))] if len(cells) < width else cells


def _header(rows: Sequence[Sequence[str]]) -> int | None:
    """Return the index of the row that names the columns, or None if no row does.

    It is the first row of texts whose next row has values; else, the first row of texts.
    """
    texts = [_names_columns(cells) for cells in rows[:_HEADER_ROWS]]
    for index, (named, below) in enumerate(zip(texts, rows[1:], strict=False)):
        if named and _has_values(below):
            return index
    return next((index for index, named in enumerate(texts) if named), None)


def _names_columns(cells: Sequence[str]) -> bool:
    filled = sum(map(bool, cells))
    enough = filled > 1 and 2 * filled >= len(cells)
    return enough and not _has_values(cells)


def _has_values(cells: Sequence[str]) -> bool:
    """Return whether a row has a value; several years, and no other value, may name columns."""
    values = [cell for cell in cells if _VALUE.fullmatch(cell)]
    return bool(values) and not (len(values) > 1 and all(map(_YEAR.fullmatch, values)))


def _caption(cells: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(filter(None, cells)))
