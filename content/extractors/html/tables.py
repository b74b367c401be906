"""Tables of a page as rows of text, with merged cells filled in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from selectolax.lexbor import LexborNode

from content.extractors.html.inline import inline_text
from runtime.errors import LimitExceeded

__all__ = ["caption_of", "data_rows"]

MOST_CELLS = 200_000
_MOST_CELL_CHARACTERS = 1_500
_MOST_COLUMNS_OF_CELL = 60
_FEWEST_COLUMNS = 2
_GROUPS = frozenset({"thead", "tbody", "tfoot"})
_NOT_DATA = frozenset({"presentation", "none"})


def data_rows(
    table: LexborNode, dropped: Collection[int], *, small: bool = False
) -> Sequence[Sequence[str]] | None:
    """Return the rows of a table, all equally long. Returns None for a table that is a layout.

    A layout has a single column, a table or code in it, or a long text in a cell. A cell over
    several rows or columns is repeated in each of them, but one over a whole row is not.

    Args:
        table: element of the table.
        dropped: ``mem_id`` of the elements to leave out.
        small: take single columns of several rows, and long texts, as data.

    Raises:
        LimitExceeded: the table has more than 200,000 cells.
    """
    if table.attributes.get("role") in _NOT_DATA:
        return None
    rows = [list(_cells_of(row)) for row in _rows_of(table)]
    if max(map(len, rows), default=0) < _FEWEST_COLUMNS and not (small and len(rows) > 1):
        return None
    if any(cell.css_first("table, pre") is not None for row in rows for cell in row):
        return None
    grid = _Grid()
    for row in rows:
        grid.begin_row()
        for cell in row:
            text = inline_text(cell, dropped)
            if len(text) > _MOST_CELL_CHARACTERS and not small:
                return None
            columns = 1 if len(row) == 1 else _span(cell, "colspan")
            grid.put(text.replace("|", "\\|"), columns, _span(cell, "rowspan"))
    return grid.rows()


def caption_of(table: LexborNode, dropped: Collection[int]) -> str:
    """Return the caption of a table. Returns '' without one."""
    caption = table.css_first("caption")
    return inline_text(caption, dropped) if caption is not None else ""


class _Grid:
    """Cells by row and column."""

    def __init__(self) -> None:
        self._rows: list[dict[int, str]] = []
        self._reaching: dict[int, tuple[str, int]] = {}  # by column: text, and rows still to fill
        self._column = 0
        self._cells = 0

    def begin_row(self) -> None:
        """Begin a row with the cells that reach into it from above."""
        row: dict[int, str] = {}
        reaching: dict[int, tuple[str, int]] = {}
        for column, (text, rows) in self._reaching.items():
            row[column] = text
            if rows > 1:
                reaching[column] = (text, rows - 1)
        self._reaching = reaching
        self._rows.append(row)
        self._column = 0
        self._count(len(row))

    def put(self, text: str, columns: int, rows: int) -> None:
        """Put a cell into the first free columns of the row."""
        row = self._rows[-1]
        while self._column in row:
            self._column += 1
        for right in range(self._column, self._column + columns):
            row[right] = text
            if rows > 1:
                self._reaching[right] = (text, rows - 1)
        self._count(columns)

    def rows(self) -> Sequence[Sequence[str]]:
        """Return all rows that hold text, filled up to the longest one."""
        width = max((max(row) + 1 for row in self._rows if row), default=0)
        self._count(width * len(self._rows))
        rows = [[row.get(column, "") for column in range(width)] for row in self._rows]
        return [row for row in rows if any(row)]

    def _count(self, cells: int) -> None:
        self._cells += cells
        if self._cells > 2 * MOST_CELLS:
            raise LimitExceeded(
                f"a table has more than {MOST_CELLS:,} cells",
                "publish its rows as documents of their own, or a description of the table",
            )


def _rows_of(table: LexborNode) -> Iterator[LexborNode]:
    for child in _children(table):
        if child.tag == "tr":
            yield child
        elif child.tag in _GROUPS:
            yield from (row for row in _children(child) if row.tag == "tr")


def _cells_of(row: LexborNode) -> Iterator[LexborNode]:
    return (cell for cell in _children(row) if cell.tag in {"td", "th"})


def _children(node: LexborNode) -> Iterator[LexborNode]:
    child = node.child
    while child is not None:
        yield child
        child = child.next


def _span(cell: LexborNode, attribute: str) -> int:
    """Rows or columns of a cell; values that are not sensible count as one."""
    value = cell.attributes.get(attribute) or "1"
    if not value.isascii() or not value.isdigit() or len(value) > len("60000"):
        return 1
    most = _MOST_COLUMNS_OF_CELL if attribute == "colspan" else MOST_CELLS
    return min(max(int(value), 1), most)
