"""Extents of sheets, read before a workbook is opened.

calamine keeps a sheet as one rectangle of cells. Two cells, in the first and in the last corner,
would take 400 GB, so the rectangle is measured first.
"""

from __future__ import annotations

import io
import re
import struct
from array import array
from collections.abc import Iterator
from struct import iter_unpack, unpack_from

from content.extractors.archives import Members, open_members
from content.extractors.sheets.cells import MOST_CELLS, too_many_cells
from runtime.errors import Damaged, Encrypted, LegacyFormat

__all__ = ["check_extents"]

MOST_AREA = 6_000_000
"""Cells of the rectangle that a sheet may take up, the empty ones included."""
MOST_LISTED = 10 * MOST_CELLS
"""Cells that a sheet may list, most of them empty."""
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SAVE_AGAIN = "save it again with the program that made it"
_SECTOR_BYTES = (512, 4096)
_STREAM = 2
_XLSB_STRINGS = 159
_XML_TAG = re.compile(
    rb"<(?:\w{1,20}:)?(row|c)(?=[\s/>])((?>[^<>\"'/]+|/(?!>)|\"[^\"]*+\"|'[^']*+')*+)(/?)>"
)
_XML_REFERENCE = re.compile(rb"\sr\s*=\s*[\"']([A-Za-z]*)(\d*)")
_LAST_ROW = 1 << 20
_LAST_COLUMN = 1 << 14
_ODS_TABLE = "urn:oasis:names:tc:opendocument:xmlns:table:1.0"
_ODS_OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"


class _Extent:
    """Smallest rectangle of the cells that were added."""

    def __init__(self) -> None:
        self._top = self._left = 1 << 40
        self._bottom = self._right = -1
        self._cells = 0

    def add(self, row: int, column: int, *, cells: int = 1) -> None:
        """Add a cell, or the corner of a rectangle.

        Raises:
            LimitExceeded: the rectangle or the number of cells is too large.
        """
        self._cells += cells
        self._top = min(self._top, row)
        self._left = min(self._left, column)
        self._bottom = max(self._bottom, row)
        self._right = max(self._right, column)
        area = (self._bottom - self._top + 1) * (self._right - self._left + 1)
        if area > MOST_AREA or self._cells > MOST_LISTED:
            raise too_many_cells()


def check_extents(raw: bytes) -> None:
    """Refuse a workbook whose sheets would take too much memory.

    Raises:
        Encrypted: the workbook has a password.
        LegacyFormat: the bytes are an Office file from before 2007 that is not a workbook.
        Damaged: the bytes are neither a zip archive nor a compound file that can be read.
        LimitExceeded: cells lie too far apart, or there are too many.
    """
    if raw.startswith(_COMPOUND_FILE):
        _check_compound_file(raw)
        return
    members = open_members(raw)
    if not {"xl/workbook.xml", "xl/workbook.bin", "content.xml"}.intersection(members.names):
        raise Damaged("the zip archive is not a workbook", "publish its members")
    _check_members(members)


def _check_members(members: Members) -> None:
    for name in members.names:
        content = members.read(name)
        if name == "content.xml":
            _check_ods(content)
        elif name.endswith(".xml"):
            _check_xlsx(content)
        elif name.endswith("sharedStrings.bin"):
            _check_xlsb_strings(content)
        elif name.endswith(".bin") and "worksheets/" in name:
            _check_xlsb(content)


def _check_xlsx(content: bytes) -> None:
    """Read the rows and cells of a sheet; those without a reference follow the ones before."""
    extent = _Extent()
    row = column = 0
    for match in _XML_TAG.finditer(content):
        tag, attributes, empty = match.groups()
        reference = _XML_REFERENCE.search(attributes)
        letters, digits = reference.groups() if reference else (b"", b"")
        if tag == b"row":
            row, column = int(digits[:9]) if digits else row + 1, 0
            continue
        if letters and digits:
            row, column = int(digits[:9]), _column(letters)
        else:
            column += 1
        if row > _LAST_ROW or column > _LAST_COLUMN:
            raise too_many_cells()
        if not empty:
            extent.add(row, column)


def _column(letters: bytes) -> int:
    """Number of a column from 1; of a name that is too long, the first letters count."""
    column = 0
    for letter in letters[:4].upper():
        column = 26 * column + letter - ord("A") + 1
    return column


def _check_xlsb(content: bytes) -> None:
    """Read the records of a binary sheet: rows (0), and cells (1 to 11) with their columns."""
    extent = _Extent()
    position = row = 0
    while position < len(content):
        kind, position = _variable_length(content, position, 2)
        size, position = _variable_length(content, position, 4)
        if kind <= 11 and size >= 4 and position + 4 <= len(content):
            (number,) = unpack_from("<I", content, position)
            if kind == 0:
                row = number
            elif kind > 1:  # 1 is an empty cell
                extent.add(row, number)
        position += size


def _check_xlsb_strings(content: bytes) -> None:
    """Refuse a table of more strings than it has bytes; calamine reserves memory for all."""
    kind, position = _variable_length(content, 0, 2)
    _, position = _variable_length(content, position, 4)
    counted = kind == _XLSB_STRINGS and position + 8 <= len(content)
    if counted and unpack_from("<I", content, position + 4)[0] > len(content):
        raise too_many_cells()


def _variable_length(content: bytes, position: int, most: int) -> tuple[int, int]:
    """Return a number of 7 bits per byte, lowest first, and the position after it."""
    number = 0
    for index, byte in enumerate(content[position : position + most]):
        number |= (byte & 0x7F) << (7 * index)
        position += 1
        if not byte & 0x80:
            break
    return number, position


def _check_ods(content: bytes) -> None:
    """Read the repeated cells and rows of an OpenDocument sheet."""
    from lxml import etree  # type: ignore[import-untyped]  # noqa: PLC0415 - for ODS only

    extent = _Extent()
    row = 0
    try:
        elements = etree.iterparse(
            io.BytesIO(content),
            events=("end",),
            tag=(f"{{{_ODS_TABLE}}}table", f"{{{_ODS_TABLE}}}table-row"),
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
        )
        for _, element in elements:
            if element.tag.endswith("}table"):
                extent, row = _Extent(), 0
                continue
            rows = _repeated(element, "number-rows-repeated")
            column = 0
            for cell in element:
                columns = _repeated(cell, "number-columns-repeated")
                if len(cell) or cell.get(f"{{{_ODS_OFFICE}}}value-type"):
                    extent.add(row, column, cells=columns * rows)
                    extent.add(row + rows - 1, column + columns - 1, cells=0)
                column += columns
            row += rows
            element.clear()
    except etree.LxmlError as error:
        raise Damaged("the sheets are not valid XML", _SAVE_AGAIN) from error


def _repeated(element: object, name: str) -> int:
    text = element.get(f"{{{_ODS_TABLE}}}{name}", "")  # type: ignore[attr-defined]
    return max(1, int(text[:9])) if text[:9].isascii() and text[:9].isdecimal() else 1


def _check_compound_file(raw: bytes) -> None:
    try:
        streams = _streams(raw)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise Damaged("the compound file can't be read", _SAVE_AGAIN) from error
    names = {name for name, _ in streams}
    if "EncryptedPackage" in names:
        raise Encrypted("the workbook has a password", "save it without a password")
    if not names.intersection(_XLS_STREAMS):
        raise LegacyFormat(
            "the file has a format of Office from before 2007",
            "save it as .docx, .pptx or .xlsx, and publish that",
        )
    for name, stream in streams:
        if name in _XLS_STREAMS:
            _check_xls(stream)


def _streams(raw: bytes) -> list[tuple[str, bytes]]:
    """Return the streams of a compound file with their names, those of folders within too."""
    size = 1 << unpack_from("<H", raw, 30)[0] % 32
    if size not in _SECTOR_BYTES:
        raise ValueError(size)
    first_directory, _, cutoff, first_mini, _, first_list = unpack_from("<6I", raw, 48)

    def sector(number: int) -> bytes:
        return raw[(number + 1) * size : (number + 2) * size]

    table_sectors = [number for (number,) in iter_unpack("<I", raw[76:512])]
    for number in _chain_of_lists(raw, first_list, size):
        table_sectors += [entry for (entry,) in iter_unpack("<I", sector(number)[: size - 4])]
    present = [number for number in table_sectors if number < len(raw) // size]
    table = _integers(b"".join(sector(number) for number in dict.fromkeys(present)))

    visited: set[int] = set()
    directory = b"".join(map(sector, _chain(table, first_directory, visited)))
    entries = [directory[at : at + 128] for at in range(0, len(directory) - 127, 128)]
    root_first = unpack_from("<I", entries[0], 116)[0]
    mini_content = b"".join(map(sector, _chain(table, root_first, visited)))
    mini_table = _integers(b"".join(map(sector, _chain(table, first_mini, visited))))
    mini_visited: set[int] = set()
    streams: list[tuple[str, bytes]] = []
    for entry in entries:
        length, kind = unpack_from("<HB", entry, 64)
        first, stream_bytes = unpack_from("<II", entry, 116)
        if kind != _STREAM or not stream_bytes:
            continue
        if stream_bytes >= cutoff:
            parts = [sector(number) for number in _chain(table, first, visited)]
        else:
            numbers = _chain(mini_table, first, mini_visited)
            parts = [mini_content[64 * number : 64 * number + 64] for number in numbers]
        name = entry[: max(0, min(length, 64) - 2)].decode("utf-16-le", "replace")
        streams.append((name, b"".join(parts)[:stream_bytes]))
    return streams


def _integers(content: bytes) -> array[int]:
    return array("I", [number for (number,) in iter_unpack("<I", content[: len(content) & ~3])])


def _chain(table: array[int], first: int, visited: set[int]) -> Iterator[int]:
    """Yield the numbers of a chain of sectors. A sector belongs to one chain, and occurs once.

    calamine follows a circle until it has no memory left.
    """
    number = first
    while number < len(table):
        if number in visited:
            raise ValueError(number)
        visited.add(number)
        yield number
        number = table[number]


def _chain_of_lists(raw: bytes, first: int, size: int) -> Iterator[int]:
    """Yield the sectors that continue the list of the sectors of the table."""
    number = first
    for _ in range(len(raw) // size):
        end = (number + 2) * size
        if end > len(raw):
            return
        yield number
        (number,) = unpack_from("<I", raw, end - 4)
    raise ValueError(first)


_XLS_STREAMS = frozenset({"Workbook", "Book"})
_XLS_START = 0x809
_MOST_READINGS = 8
"""Times that a stream is read at most: sheets do not overlap, unless their starts are wrong."""
_XLS_END = 0x0A
_XLS_SHEET = 0x85
_XLS_DIMENSIONS = 0x200
_XLS_DIMENSION_FORMS = {10: "<4H", 14: "<IIHH"}
_XLS_STRINGS = 0xFC
_XLS_CELLS = frozenset(
    {0x02, 0x03, 0x04, 0x05, 0x06, 0xBD, 0xD6, 0xFD, 0x203, 0x204, 0x205, 0x206, 0x27E, 0x406}
)
_XLS_CELLS_OF_A_ROW = 0xBD


def _check_xls(workbook: bytes) -> None:
    """Read the records of a workbook, and those of each sheet from where the workbook says."""
    starts, _ = _check_records(workbook, 0)
    read = 0
    for start in dict.fromkeys(starts):
        _, end = _check_records(workbook, start)
        read += max(0, end - start)
        if read > _MOST_READINGS * len(workbook):
            raise too_many_cells()


def _check_records(workbook: bytes, start: int) -> tuple[list[int], int]:
    """Check the extent of each part; return the starts of sheets, and the end of what was read.

    From the start of a sheet, that is its end; from 0, it is the end of the stream.
    """
    extent = _Extent()
    starts: list[int] = []
    position = start
    while position + 4 <= len(workbook):
        kind, size = unpack_from("<HH", workbook, position)
        record = workbook[position + 4 : position + 4 + size]
        position += 4 + size
        if kind == _XLS_START:
            extent = _Extent()
        elif kind == _XLS_END and start:
            break
        elif kind == _XLS_SHEET and len(record) >= 4:
            starts.append(unpack_from("<I", record)[0])
        elif kind == _XLS_DIMENSIONS and len(record) in _XLS_DIMENSION_FORMS:
            _check_announced(*unpack_from(_XLS_DIMENSION_FORMS[len(record)], record))
        elif kind == _XLS_STRINGS and len(record) >= 8:
            if unpack_from("<I", record, 4)[0] > len(workbook):
                raise too_many_cells()
        elif kind in _XLS_CELLS and len(record) >= 4:
            row, column = unpack_from("<HH", record)
            extent.add(row, column)
            if kind == _XLS_CELLS_OF_A_ROW and len(record) >= 6:
                extent.add(row, unpack_from("<H", record, len(record) - 2)[0])
    return starts, position


def _check_announced(top: int, bottom: int, left: int, right: int) -> None:
    """Refuse what calamine would reserve too much memory for: its unsigned differences wrap."""
    if bottom and right:
        rows = (bottom - 1 - top) % (1 << 32) + 1
        columns = (right - 1 - left) % (1 << 32) + 1
        if rows * columns > MOST_AREA:
            raise too_many_cells()
