"""Tables of pages."""

from __future__ import annotations

import pytest

from content.extractors.html import extract
from runtime.errors import LimitExceeded


def _lines(table: str) -> tuple[str, ...]:
    return tuple(extract(f"<main><p>before</p>{table}</main>".encode()).lines[2:])


def test_rows_and_caption() -> None:
    table = (
        "<table><caption>Costs</caption><tr><th>Team<th>Cost<tr><td>a|b<td><p>1</p><p>2</p></table>"
    )
    assert _lines(table) == ("Costs", "", "| Team | Cost |", "|---|---|", "| a\\|b | 1 2 |")


def test_merged_cells_are_filled_in() -> None:
    table = (
        "<table><tr><th rowspan=2>a<th colspan=2>b<tr><td>c<td>d"
        "<tr><td colspan=3>whole<tr><td>e<td>f<td>g</table>"
    )
    assert _lines(table) == (
        "| a | b | b |",
        "|---|---|---|",
        "| a | c | d |",
        "| whole |  |  |",
        "| e | f | g |",
    )


def test_equal_cells_are_kept() -> None:
    assert _lines("<table><tr><td>1<td>1</table>")[0] == "| 1 | 1 |"


@pytest.mark.parametrize(
    "table",
    [
        "<table><tr><td>a<tr><td>b</table>",
        "<table role=presentation><tr><td>a<td>b</table>",
        "<table><tr><td>a<td><table><tr><td>b</table></table>",
    ],
)
def test_layouts_are_read_as_blocks(table: str) -> None:
    assert _lines(table) == ("a", "", "b")


def test_a_table_in_a_layout_is_a_table() -> None:
    table = "<table><tr><td>a<td><table><tr><td>b<td>c</table></table>"
    assert _lines(table) == ("a", "", "| b | c |", "|---|---|")


def test_the_span_of_a_cell_is_bounded() -> None:
    table = "<table><tr><td colspan=99999>a<td rowspan=99999>b<tr><td>c</table>"
    assert _lines(table)[0].count("|") == 62


def test_too_many_cells_are_refused() -> None:
    row = "<tr>" + "<td colspan=60>x" * 50
    with pytest.raises(LimitExceeded, match="200,000 cells"):
        _lines(f"<table>{row * 200}</table>")
