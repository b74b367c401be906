"""Rows of files of separated values."""

from __future__ import annotations

from pathlib import Path

import pytest

from content.extractors.sheets.separated import read_separated
from runtime.errors import Damaged, LimitExceeded

DATA = Path(__file__).parents[4] / "data/content/sheet"


def _rows(text: str) -> list[list[str]]:
    return [list(row.cells) for row in read_separated(text.encode())]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_what_divides_the_rows_evenly(delimiter: str) -> None:
    rows = [["Name", "What it's"], ["Ana", 'a "b", c; d | e\tf'], ["Ben", "it's"]]
    quoted = ([f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows)
    text = "\n".join(delimiter.join(row) for row in quoted)
    assert _rows(text) == [[cell.replace("\t", " ") for cell in row] for row in rows]


def test_commas_within_fields_do_not_hide_a_semicolon() -> None:
    rows = list(read_separated((DATA / "semicolon-delimited.csv").read_bytes()))
    assert rows[0].cells == ["Lorem, ipsum", "dolor sit", "amet"]
    assert {len(row.cells) for row in rows if row.cells} == {3}


def test_a_single_column_is_not_divided() -> None:
    assert _rows("one\ntwo three\n") == [["one"], ["two three"], []]


def test_a_row_has_the_lines_that_it_takes_up() -> None:
    text = 'a,b\r\n"1\r\n2",3\r\n\r\n4,5\r\n'
    rows = list(read_separated(text.encode()))
    assert [(row.number, row.cells, row.lines) for row in rows[:4]] == [
        (1, ["a", "b"], (1, 1)),
        (2, ["1 2", "3"], (2, 3)),
        (3, [], (4, 4)),
        (4, ["4", "5"], (5, 5)),
    ]


def test_a_quotation_that_does_not_end_is_refused_when_it_is_long() -> None:
    with pytest.raises(LimitExceeded, match="field is longer"):
        _rows('a,"' + "b\n" * 100_000)


@pytest.mark.parametrize("raw", [b"a,b\0c\n", b"\xff\xd8\xff\xe0"])
def test_bytes_that_are_no_text_are_refused(raw: bytes) -> None:
    with pytest.raises(Damaged):
        list(read_separated(raw))
