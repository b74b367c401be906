"""Rows of workbooks (xlsx, xlsm, xlsb, xls, ods), read by calamine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING

from content.extractors.sheets.cells import Grid, Row, too_many_cells
from content.extractors.sheets.extents import check_extents
from content.extractors.sheets.separated import CELL_CHARACTERS
from content.extractors.texts import single_line
from runtime.errors import Damaged, Encrypted

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

__all__ = ["is_workbook", "read_workbook"]

_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
_HALF_SECOND = timedelta(milliseconds=500)
_EXACT_INTEGER = 1e17
_MOST_MERGED_CELLS = 50_000_000
"""Cells of the rows with merged cells, each row counted once for each of them."""
Cell = int | float | str | bool | time | date | datetime | timedelta | None


def is_workbook(raw: bytes) -> bool:
    """Return whether the bytes begin like a zip archive or a compound file."""
    return raw.startswith(_MAGIC)


def read_workbook(raw: bytes) -> Iterator[Grid]:
    """Yield the sheets of a workbook that have cells.

    Raises:
        Encrypted: the workbook has a password.
        LegacyFormat: the bytes are an Office file from before 2007 that is not a workbook.
        Damaged: the bytes can't be read.
        LimitExceeded: there are too many cells, or they lie too far apart.
    """
    check_extents(raw)
    workbook = _open(raw)
    for index, name in enumerate(workbook.sheet_names, 1):
        sheet = _sheet(workbook, name)
        if sheet is not None and sheet.start is not None:
            top, left = sheet.start
            yield Grid(name, _rows(sheet, top, left), left + 1, index)


def _open(raw: bytes) -> CalamineWorkbook:
    from python_calamine import CalamineWorkbook, PasswordError  # noqa: PLC0415 - first workbook

    try:
        return CalamineWorkbook.from_filelike(io.BytesIO(raw))
    except PasswordError as error:
        raise Encrypted("the workbook has a password", "save it without a password") from error
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _damaged(error) from error


def _sheet(workbook: CalamineWorkbook, name: str) -> CalamineSheet | None:
    """Read a sheet; None for a sheet without cells, such as a chart."""
    from python_calamine import WorksheetNotFound  # noqa: PLC0415 - loaded by _open

    try:
        return workbook.get_sheet_by_name(name)
    except WorksheetNotFound:
        return None
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _damaged(error) from error


def _damaged(error: BaseException) -> Damaged:
    """Return the refusal for an error of calamine, or raise what is not its error.

    Besides its own class of errors, calamine raises those of the bytes' reader and, where its code
    panics, an exception that is not an ``Exception`` and whose class can't be imported.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    return Damaged("the workbook can't be read", "save it again with the program that made it")


def _rows(sheet: CalamineSheet, top: int, left: int) -> Iterator[Row]:
    """Yield the rows that have a value; merged cells repeat theirs."""
    rows = {
        number: [_text(value) for value in row]
        for number, row in enumerate(sheet.to_python(), top)
        if row.count("") < len(row)
    }
    visited = 0
    for (first_row, first_column), (last_row, last_column) in sheet.merged_cell_ranges or ():
        numbers = range(first_row, min(last_row, top + sheet.height) + 1)
        visited += len(numbers) * sheet.width
        if visited > _MOST_MERGED_CELLS:
            raise too_many_cells()
        _fill(rows, numbers, first_column - left, last_column - left + 1)
    for number, cells in rows.items():
        yield Row(number + 1, cells)


def _fill(rows: dict[int, list[str]], numbers: range, start: int, end: int) -> None:
    """Repeat the value of merged cells, except in a row that has nothing else: a caption."""
    first = rows.get(numbers.start)
    if first is None or not 0 <= start < min(end, len(first)) or not first[start]:
        return
    end = min(end, len(first))
    for number in numbers:
        cells = rows.get(number)
        if cells and (end - start == 1 or any(cells[:start]) or any(cells[end:])):
            cells[start:end] = [first[start]] * (end - start)


def _text(value: Cell) -> str:
    """Return a value as it is written: ``200``, ``0.5``, ``TRUE``, ``2024-03-01``."""
    if isinstance(value, str):
        return single_line(value, CELL_CHARACTERS)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        # spreadsheets show 15 digits; more are noise of the binary form
        exact = value.is_integer() and abs(value) < _EXACT_INTEGER
        return str(int(value)) if exact else f"{value:.15g}"
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)


def _moment(value: datetime) -> str:
    """Return a date, with its time to the second unless that is midnight."""
    if value.microsecond:
        with suppress(OverflowError):  # by the last second that there is
            value += _HALF_SECOND
        value = value.replace(microsecond=0)
    return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
