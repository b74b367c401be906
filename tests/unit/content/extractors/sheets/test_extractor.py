"""Extraction of sheets."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from content.extractors.sheets import cells, extract, extractor
from content.rendition import Place, Rendition, Section
from runtime.errors import Damaged, Encrypted, LegacyFormat, LimitExceeded
from tests.support.fuzzed_bytes import (
    assert_sound,
    renditions_of,
    variants,
    variants_of_members,
    zipped,
)

DATA = Path(__file__).parents[4] / "data/content/sheet"

Rows = list[list[object]]


def workbook(fill: Callable[[Any], None], name: str = "Costs") -> bytes:
    """Return a workbook of one sheet."""
    buffer = io.BytesIO()
    options = {"in_memory": True, "default_date_format": "yyyy-mm-dd hh:mm"}
    with xlsxwriter.Workbook(buffer, options) as book:
        fill(book.add_worksheet(name))
    return buffer.getvalue()


def of_rows(rows: Sequence[Sequence[object]], *, top: int = 0, left: int = 0) -> bytes:
    """Return a workbook with rows from a cell on; None is an empty cell."""

    def fill(sheet: Any) -> None:
        for number, row in enumerate(rows, top):
            for column, value in enumerate(row, left):
                if value is not None:
                    sheet.write(number, column, value)

    return workbook(fill)


def _extracted(raw: bytes) -> Rendition:
    rendition = extract(raw)
    assert_sound(rendition)
    return rendition


def _with_fragments(rendition: Rendition) -> list[tuple[str, str]]:
    return [
        (rendition.places[index].fragment, line)
        for index, line in zip(rendition.place_of, rendition.lines, strict=True)
        if line
    ]


def test_a_block_has_its_columns_in_its_label_and_a_range_for_each_row() -> None:
    rows: list[list[object]] = [
        ["Date", "Item", "Amount"],
        ["2024-03-01", "Paper|A4", 200],
        ["", "Ink", 0.5],
    ]
    rendition = _extracted(of_rows(rows, top=2, left=1))
    assert rendition.sections == (Section(0, 1, "Costs", "Costs > Date | Item | Amount"),)
    assert _with_fragments(rendition) == [
        ("Costs!B3:D3", "# Costs"),
        ("Costs!B3:D3", "| Date | Item | Amount |"),
        ("Costs!B3:D3", "| --- | --- | --- |"),
        ("Costs!B4:D4", "| 2024-03-01 | Paper\\|A4 | 200 |"),
        ("Costs!B5:D5", "|  | Ink | 0.5 |"),
    ]
    assert {place.page for place in rendition.places} == {1}
    assert rendition.title is None


def test_an_edited_row_changes_its_own_line_only() -> None:
    rows: Rows = [["Item", "Amount"], *([f"thing {n}", n] for n in range(50))]
    before = _extracted(of_rows(rows))
    rows[20] = ["another", 7]
    after = _extracted(of_rows(rows))
    lines = zip(before.lines, after.lines, strict=True)
    assert [pair for pair in lines if pair[0] != pair[1]] == [
        ("| thing 19 | 19 |", "| another | 7 |")
    ]
    assert before.sections == after.sections
    assert before.places == after.places


def test_empty_rows_part_blocks() -> None:
    rows: list[list[object]] = [
        ["Item", "Amount"],
        ["Ink", 1],
        [],
        ["Team", "Place", "Points"],
        ["Blues", "STL", 2],
    ]
    rendition = _extracted(of_rows(rows))
    assert [section.label for section in rendition.sections] == [
        "Costs > Item | Amount",
        "Costs > Team | Place | Points",
    ]
    second = rendition.sections[1].row
    assert _with_fragments(rendition)[-2:] == [
        ("Costs!A4:C4", "| --- | --- | --- |"),
        ("Costs!A5:C5", "| Blues | STL | 2 |"),
    ]
    assert rendition.lines[second] == "# Costs"


def test_merged_cells_repeat_their_value_and_captions_do_not() -> None:
    def fill(sheet: Any) -> None:
        sheet.merge_range(0, 0, 0, 2, "All costs")
        sheet.write_row(1, 0, ["Group", "Item", "Amount"])
        sheet.merge_range(2, 0, 3, 0, "Office")
        sheet.write_row(2, 1, ["Ink", 1])
        sheet.write_row(3, 1, ["Paper", 2])
        sheet.merge_range(4, 0, 4, 1, "Sum")
        sheet.write(4, 2, 3)

    assert [line for _, line in _with_fragments(_extracted(workbook(fill)))] == [
        "# Costs",
        "All costs",
        "| Group | Item | Amount |",
        "| --- | --- | --- |",
        "| Office | Ink | 1 |",
        "| Office | Paper | 2 |",
        "| Sum | Sum | 3 |",
    ]


def test_values_are_written_as_spreadsheets_show_them() -> None:
    def fill(sheet: Any) -> None:
        sheet.write_row(0, 0, ["a", "b", "c", "d", "e", "f", "g"])
        sheet.write_row(1, 0, [200.0, 0.1 + 0.2, True, "two\nlines"])
        sheet.write_row(1, 4, [datetime(2024, 3, 1, 9, 30), date(2024, 3, 1), time(9, 30)])

    assert _with_fragments(_extracted(workbook(fill)))[-1][1] == (
        "| 200 | 0.3 | TRUE | two lines | 2024-03-01 09:30:00 | 2024-03-01 | 09:30:00 |"
    )


@pytest.mark.parametrize(
    ("rows", "label"),
    [
        ([["Name", "Role"], ["Ana", "Dev"], ["Ben", "Ops"]], "Costs > Name | Role"),
        ([["Country", "2019", "2020"], ["Peru", "5", "6"]], "Costs > Country | 2019 | 2020"),
        ([["Title", "Year"], ["Alien", "1979"]], "Costs > Title | Year"),
        ([["Sales of 2024"], ["Item", "Sum"], ["Ink", "$ 1.50"]], "Costs > Item | Sum"),
        ([["Sales", "in 2024"], ["Item", "Sum"], ["Ink", "12 %"]], "Costs > Item | Sum"),
        ([["Item", "Day"], ["Ink", "01.03.2024"]], "Costs > Item | Day"),
        ([["1", "2"], ["3", "4"]], "Costs"),
        ([["Only a header", "Amount"]], "Costs > Only a header | Amount"),
        ([["Prose"], ["in one column"]], "Costs"),
    ],
)
def test_the_header_is_the_first_row_of_texts_above_values(
    rows: list[list[str]], label: str
) -> None:
    rendition = _extracted(of_rows(rows))
    assert [section.label for section in rendition.sections] == [label]
    text = "\n".join(rendition.lines)
    assert all(cell in text for row in rows for cell in row)


def test_a_wide_row_becomes_lines_that_name_their_columns() -> None:
    rows: list[list[object]] = [
        ["Item", None, "Amount"],
        ["Ink", "x" * 700, None],
        ["Pen", "short", 2],
    ]
    rows.insert(1, ["Paper", None, 1])
    rendition = _extracted(of_rows(rows))
    assert rendition.lines[2:] == (
        "| Item |  | Amount |",
        "| --- | --- | --- |",
        "| Paper |  | 1 |",
        "",
        "Item: Ink",
        "B: " + "x" * 700,
        "",
        "| Pen | short | 2 |",
    )
    assert rendition.places[rendition.place_of[7]].fragment == "Costs!A3:C3"


def test_a_wide_header_is_repeated_by_every_row_and_not_by_the_label() -> None:
    names = [f"column number {n}" for n in range(40)]
    rendition = _extracted(of_rows([names, [1, *[None] * 38, 2]]))
    assert rendition.sections == (Section(0, 1, "Costs", "Costs"),)
    assert [line for line in rendition.lines if line] == [
        "# Costs",
        "column number 0: 1",
        "column number 39: 2",
    ]


def test_values_separated_by_commas_have_the_lines_of_the_file() -> None:
    rendition = _extracted(b'Team,Points\nBlues,"1"\n\nNote\n')
    assert rendition.sections == (
        Section(0, 1, "Team | Points", "Team | Points"),
        Section(4, 1, "rows", "rows"),
    )
    assert rendition.lines == (
        "| Team | Points |",
        "| --- | --- |",
        "| Blues | 1 |",
        "",
        "Note",
    )
    places = [rendition.places[index] for index in rendition.place_of]
    assert places[2] == Place(fragment="A2:B2", lines=(2, 2))
    assert places[4] == Place(fragment="A4:A4", lines=(4, 4))


def test_a_legacy_workbook_is_read() -> None:
    rendition = _extracted((DATA / "made-with-xlwt.xls").read_bytes())
    assert [section.label for section in rendition.sections] == [
        "Costs > Date | Item | Amount",
        "Notes > Key | Count",
    ]
    lines = [line for _, line in _with_fragments(rendition)]
    assert "| 2024-03-01 | Paper | 200 |" in lines
    assert lines[-3:] == ["| --- | --- |", "| Both | 1 |", "| Both | 2 |"]


def test_a_workbook_of_strangers_is_read() -> None:
    rendition = _extracted((DATA / "stanley-cups.xlsx").read_bytes())
    assert [section.name for section in rendition.sections] == [
        "Stanley Cups",
        "Stanley Cups Since 67",
    ]
    assert ("'Stanley Cups'!A3:C3", "| Blues | STL | 1 |") in _with_fragments(rendition)


def test_a_workbook_without_cells_is_empty() -> None:
    rendition = _extracted((DATA / "empty.xlsx").read_bytes())
    assert rendition.lines == ()
    assert rendition.warnings == ("the sheets have no cells with a value",)


def test_a_workbook_with_a_password_is_refused() -> None:
    with pytest.raises(Encrypted, match="password"):
        extract((DATA / "password_protected.xlsx").read_bytes())


def _legacy_without_workbook() -> bytes:
    raw = (DATA / "made-with-xlwt.xls").read_bytes()
    return raw.replace("Workbook".encode("utf-16-le"), "WordDocu".encode("utf-16-le"))


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (zipped({"word/document.xml": b"<document/>"}), Damaged),
        (zipped({"xl/workbook.xml": b"<workbook/>"}), Damaged),
        (b"PK\x03\x04 and no more", Damaged),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), Damaged),
        (_legacy_without_workbook(), LegacyFormat),
    ],
)
def test_what_is_no_workbook_is_refused(raw: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        extract(raw)


def test_too_many_cells_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cells, extractor):
        monkeypatch.setattr(module, "MOST_CELLS", 8)
    raw = b"a,b\n1,2\n\n3,4\n5,6\n"
    assert _extracted(raw).lines
    with pytest.raises(LimitExceeded, match="8 cells"):
        extract(raw + b"7,\n")


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="16,384 columns"):
        extract(b"," * 16_384 + b"x\n")


@pytest.mark.parametrize(("name", "least"), [("stanley-cups.xlsx", 1), ("made-with-xlwt.xls", 50)])
def test_damaged_workbooks_are_refused_or_extracted(name: str, least: int) -> None:
    raw = (DATA / name).read_bytes()
    extracted, refused = renditions_of(extract, variants(raw, seed=5, count=150))
    assert extracted >= least
    assert refused > 5


def test_workbooks_with_damaged_members_are_refused_or_extracted() -> None:
    raw = (DATA / "stanley-cups.xlsx").read_bytes()
    extracted, refused = renditions_of(extract, variants_of_members(raw, seed=6, count=150))
    assert extracted > 5
    assert refused > 5


def test_damaged_separated_values_are_refused_or_extracted() -> None:
    raw = 'Team;"It\'s, so";Größe\r\nBlues;"1\n2";3\n'.encode()
    extracted, refused = renditions_of(extract, variants(raw, seed=7, count=200))
    assert extracted > 50
    assert refused > 5


def test_equal_bytes_give_equal_renditions() -> None:
    raw = (DATA / "stanley-cups.xlsx").read_bytes()
    assert extract(raw) == extract(raw)
