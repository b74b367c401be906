"""Rows as tables of plain columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gateway.output import printable

__all__ = ["table"]

Row = Mapping[str, Any]


def table(rows: Sequence[Row], leave_out: Sequence[str] = ()) -> Table:
    """A table of rows that have the same columns; there must be one at least."""
    columns = [column for column in rows[0] if column not in leave_out]
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        # a heading's words may stand below each other; a name must be readable
        shown.add_column(column.replace("_", " "), no_wrap=column == columns[0])
    for row in rows:
        shown.add_row(*(Text(printable(_cell(column, row[column]))) for column in columns))
    return shown


def _cell(column: str, value: Any) -> str:
    """What isn't known is shown as unknown, never as 0; nothing to wait for is a dash."""
    if value is None:
        return "unknown" if column == "lag" else "-"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
