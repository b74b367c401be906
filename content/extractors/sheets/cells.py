"""Rows of sheets, and the names of their ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from content.extractors.texts import single_line
from runtime.errors import LimitExceeded

__all__ = ["MOST_CELLS", "Grid", "Row", "column_letters", "range_name", "too_many_cells"]

MOST_CELLS = 200_000
_NAME_CHARACTERS = 100
_PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
_CELL_NAME = re.compile(r"[A-Za-z]{1,3}\d+")


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a sheet. ``number`` counts from 1; ``lines`` are those of a file of text."""

    number: int
    cells: Sequence[str]
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of one sheet, in their order.

    ``left`` is the column of their first cells, from 1. ``index`` is the number of the sheet, from
    1; None for a file that has no sheets.
    """

    name: str
    rows: Iterable[Row]
    left: int = 1
    index: int | None = None


def column_letters(number: int) -> str:
    """Return the name of a column, from 1: ``A`` … ``Z``, ``AA``."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def range_name(sheet: str, left: int, top: int, right: int, bottom: int) -> str:
    """Name a range as spreadsheets do: ``Costs!A2:F41``; without a sheet, ``A2:F41``."""
    cells = f"{column_letters(left)}{top}:{column_letters(right)}{bottom}"
    return f"{_quoted(sheet)}!{cells}" if sheet else cells


def too_many_cells() -> LimitExceeded:
    """Return the refusal of sheets that are data rather than a document."""
    return LimitExceeded(
        f"the sheets have more than {MOST_CELLS:,} cells, or lie too far apart",
        "publish a description of the data, or its rows as documents of their own",
    )


def _quoted(name: str) -> str:
    """Quote the name of a sheet unless it is a plain word; ``Q4`` would be a cell."""
    line = single_line(name, _NAME_CHARACTERS)
    if not line or (_PLAIN_NAME.fullmatch(line) and not _CELL_NAME.fullmatch(line)):
        return line
    return "'" + line.replace("'", "''") + "'"
