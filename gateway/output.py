"""Output of commands: results go to stdout, progress and notes to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runtime.terminal import escaped, on_one_line, printable

__all__ = ["on_one_line", "print_json", "printable", "stderr", "stdout", "table"]

_MOST_EXACT = 2**53 - 1
_ANY_WIDTH = 10_000


def stdout() -> Console:
    """Console for results. Colours and line breaks are added only on a terminal.

    Elsewhere a table takes the width that it needs, unless ``COLUMNS`` says how much there is.
    """
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else _ANY_WIDTH
    return Console(highlight=False, soft_wrap=not is_terminal, width=width)


def stderr() -> Console:
    """Console for progress and notes."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object on one line of stdout; integers of more than 53 bits become strings.

    JavaScript and jq would round them, and a rounded log position is a different position.
    """
    text = json.dumps(_exact(value), ensure_ascii=False, separators=(",", ":"))
    print(escaped(text), flush=True)  # noqa: T201


def _exact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _exact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(part) for part in value]
    if isinstance(value, int) and abs(value) > _MOST_EXACT:
        return str(value)
    return value


Row = Mapping[str, Any]


def table(rows: Sequence[Row], leave_out: Sequence[str] = ()) -> RenderableType:
    """Build a table from one or more rows with the same columns.

    If the terminal is too narrow for the table, each row is printed as a paragraph.
    """
    return _Fitting(rows, leave_out)


class _Fitting:
    def __init__(self, rows: Sequence[Row], leave_out: Sequence[str]) -> None:
        self._rows = rows
        self._leave_out = leave_out

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = _table(self._rows, self._leave_out)
        needed = Measurement.get(console, options.update_width(_ANY_WIDTH), whole).minimum
        if needed <= options.max_width:
            yield whole
        else:
            yield from _paragraphs(self._rows, self._leave_out, wrap=not options.no_wrap)


def _paragraphs(
    rows: Sequence[Row], leave_out: Sequence[str], *, wrap: bool
) -> Iterator[RenderableType]:
    """Yield each row as its name and an indented line; ``Padding`` would cut one without wrap."""
    first, *others = [column for column in rows[0] if column not in leave_out]
    for row in rows:
        cells = (f"{name.replace('_', ' ')} {_cell(name, row[name])}" for name in others)
        name = first.replace("_", " ")
        yield Text(f"{name} {printable(_cell(first, row[first]))}", style="bold")
        text = printable(" · ".join(cells))
        yield Padding(Text(text), (0, 0, 0, 2)) if wrap else Text(f"  {text}")


def _table(rows: Sequence[Row], leave_out: Sequence[str]) -> Table:
    columns = [column for column in rows[0] if column not in leave_out]
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        # headings may be wrapped, but the names in the first column must stay readable
        shown.add_column(column.replace("_", " "), no_wrap=column == columns[0])
    for row in rows:
        shown.add_row(*(Text(printable(_cell(column, row[column]))) for column in columns))
    return shown


def _cell(column: str, value: Any) -> str:
    """Format a value. None is shown as a dash; for a lag it means unknown, which is not 0."""
    if value is None:
        return "unknown" if column == "lag" else "-"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
