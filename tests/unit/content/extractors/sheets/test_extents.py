"""Extents of sheets that would take too much memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack, unpack_from

import pytest

from content.extractors.sheets import extents, extract
from content.extractors.sheets.extents import check_extents
from runtime.errors import Damaged, LimitExceeded
from tests.support.fuzzed_bytes import zipped

DATA = Path(__file__).parents[4] / "data/content/sheet"
TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"


def _xlsx(cells: str, prefix: str = "") -> bytes:
    sheet = f"<{prefix}worksheet><{prefix}sheetData>{cells}</{prefix}sheetData></{prefix}worksheet>"
    return zipped({"xl/workbook.xml": b"<workbook/>", "xl/worksheets/sheet1.xml": sheet.encode()})


def _ods(rows: str) -> bytes:
    content = (
        f'<office:document-content xmlns:office="{OFFICE}" xmlns:table="{TABLE}"'
        f' xmlns:text="{TEXT}">'
        f'<office:body><office:spreadsheet><table:table table:name="Costs">{rows}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    kind = b"application/vnd.oasis.opendocument.spreadsheet"
    manifest = b'<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
    return zipped(
        {"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content.encode()}
    )


def _ods_row(*cells: tuple[str, int], rows: int = 1) -> str:
    """Return rows of cells: their text, '' for an empty one, and how often each is repeated."""
    within = "".join(
        f'<table:table-cell table:number-columns-repeated="{count}"'
        + (
            f' office:value-type="string"><text:p>{text}</text:p></table:table-cell>'
            if text
            else "/>"
        )
        for text, count in cells
    )
    return f'<table:table-row table:number-rows-repeated="{rows}">{within}</table:table-row>'


def _xlsb(*cells: tuple[int, int]) -> bytes:
    records = b"".join(
        b"\x00\x04" + pack("<I", row) + b"\x07\x08" + pack("<II", column, 0)
        for row, column in cells
    )
    return zipped({"xl/workbook.bin": b"", "xl/worksheets/sheet1.bin": records})


def test_cells_that_lie_far_apart_are_refused() -> None:
    check_extents(_xlsx('<c r="A1"><v>1</v></c><c r="XFD1"><v>1</v></c>'))
    check_extents(_xlsx('<c r="A1"><v>1</v></c><c r="XFD1048576" s="1"/>'))
    for prefix in ("", "x:"):
        far = f'<{prefix}c r="A1"><v>1</v></{prefix}c><{prefix}c s="1" r="XFD1048576"><v>1</v></c>'
        with pytest.raises(LimitExceeded, match="too far apart"):
            extract(_xlsx(far, prefix))


@pytest.mark.parametrize(
    "cells",
    [
        '<row r="1"><c><v>1</v></c></row><row r="1048576"><c r="Z1048576"><v>1</v></c></row>',
        '<row r="1"><c><v>1</v></c></row><row r="1000000"><c/>' + "<c><v>1</v></c>" * 7 + "</row>",
        '<c r="A1"><v>1</v></c><c s=">" r="XFD1048576"><v>1</v></c>',
        '<c r="A1"><v>1</v></c><c x="' + "x" * 300 + '" r="XFD1048576"><v>1</v></c>',
        '<c r="A1"><v>1</v></c><c r="xfd1048576"><v>1</v></c>',
        '<c r="ZZZZZZZ9"><v>1</v></c>',
        '<c r="A99999999999"><v>1</v></c>',
    ],
)
def test_far_cells_are_refused_however_their_places_are_written(cells: str) -> None:
    """Calamine counts cells without a reference, and ends the process for a far column."""
    with pytest.raises(LimitExceeded, match="too far apart"):
        extract(_xlsx(cells))


def test_empty_cells_do_not_count_in_rows_without_references() -> None:
    check_extents(
        _xlsx('<row r="1"><c><v>1</v></c></row><row r="1000000">' + "<c/>" * 9 + "</row>")
    )


def test_cells_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = _xlsx("".join(f'<c r="A{n}">x</c>' for n in range(1, 12)))
    check_extents(raw)
    monkeypatch.setattr(extents, "MOST_LISTED", 10)
    with pytest.raises(LimitExceeded, match="200,000 cells"):
        extract(raw)


def test_binary_cells_that_lie_far_apart_are_refused() -> None:
    check_extents(_xlsb((0, 0), (0, 16_383)))
    with pytest.raises(LimitExceeded, match="too far apart"):
        extract(_xlsb((0, 0), (1_048_575, 16_383)))


@pytest.mark.parametrize(
    "rows",
    [
        _ods_row(("x", 16_384), rows=1_048_576),
        _ods_row(("x", 1)) + _ods_row(("", 1), rows=1_048_574) + _ods_row(("", 16_383), ("x", 1)),
    ],
)
def test_repeated_cells_are_counted(rows: str) -> None:
    with pytest.raises(LimitExceeded, match="too far apart"):
        extract(_ods(rows))


def test_empty_cells_to_the_end_of_a_sheet_do_not_count() -> None:
    rows = _ods_row(("Item", 1), ("Amount", 1)) + _ods_row(("Ink", 2), ("", 16_382))
    rows += _ods_row(("", 16_384), rows=1_048_574)
    assert extract(_ods(rows)).lines[-1] == "| Ink | Ink |"


def test_sheets_that_are_no_xml_are_refused() -> None:
    with pytest.raises(Damaged, match="valid XML"):
        extract(zipped({"content.xml": b"<a>"}))


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: _replaced(raw, 0x200, 14, pack("<IIHHH", 0, 65_536, 0, 65_535, 0)),
        lambda raw: _replaced(raw, 0x200, 14, pack("<IIHHH", 9, 3, 0, 3, 0)),
        lambda raw: _replaced(raw, 0xFD, 10, pack("<HHHI", 65_535, 65_535, 15, 0)),
    ],
    ids=["announced", "reversed", "present"],
)
def test_legacy_cells_that_lie_far_apart_are_refused(change: Callable[[bytes], bytes]) -> None:
    raw = (DATA / "made-with-xlwt.xls").read_bytes()
    check_extents(raw)
    with pytest.raises(LimitExceeded, match="too far apart"):
        extract(change(raw))


def test_legacy_strings_are_no_more_than_their_bytes() -> None:
    raw = bytearray((DATA / "made-with-xlwt.xls").read_bytes())
    start = raw.index(pack("<HHII", 0xFC, 83, 9, 9)) + 4
    raw[start + 4 : start + 8] = pack("<I", 1 << 31)
    with pytest.raises(LimitExceeded, match="200,000 cells"):
        extract(bytes(raw))


def test_binary_strings_are_no_more_than_their_bytes() -> None:
    def archive(strings: int) -> bytes:
        table = b"\x9f\x01\x08" + pack("<II", strings, strings)
        return zipped({"xl/workbook.bin": b"", "xl/sharedStrings.bin": table})

    check_extents(archive(1))
    with pytest.raises(LimitExceeded, match="200,000 cells"):
        extract(archive(1 << 31))


def _replaced(raw: bytes, kind: int, size: int, record: bytes) -> bytes:
    """Replace the last record of a kind and size."""
    start = raw.rindex(pack("<HH", kind, size)) + 4
    return raw[:start] + record + raw[start + len(record) :]


@pytest.mark.parametrize("stream", ["directory", "workbook"])
def test_a_circle_of_sectors_is_refused(stream: str) -> None:
    raw = bytearray((DATA / "made-with-xlwt.xls").read_bytes())
    (directory,) = unpack_from("<I", raw, 48)
    (table,) = unpack_from("<I", raw, 76)
    sector = directory if stream == "directory" else 0
    entry = 512 * (table + 1) + 4 * sector
    raw[entry : entry + 4] = pack("<I", sector)
    with pytest.raises(Damaged, match="compound file"):
        extract(bytes(raw))


def test_a_circle_in_the_list_of_the_sector_table_is_refused() -> None:
    raw = bytearray((DATA / "made-with-xlwt.xls").read_bytes())
    raw[68:72] = pack("<I", 0)
    raw[1020:1024] = pack("<I", 0)
    with pytest.raises(Damaged, match="compound file"):
        extract(bytes(raw))
