"""Kinds of documents in containers, by the names of the parts."""

from __future__ import annotations

import struct
from random import Random

import pytest

from content.containers import compound_file_kind, zip_kind
from runtime.errors import LegacyFormat, UnsupportedContent
from tests.support.containers import compound_file, zip_of


def test_only_the_top_of_a_compound_file_decides() -> None:
    """A document that is embedded in another one says nothing about the outer kind."""
    assert compound_file_kind(compound_file("Book", inner="WordDocument")) == "sheet"
    with pytest.raises(LegacyFormat, match="Word"):
        compound_file_kind(compound_file("WordDocument", inner="Workbook"))


def test_a_long_directory_is_followed() -> None:
    """The directory of a compound file may have many sectors."""
    names = [f"stream {number}" for number in range(100)]
    assert compound_file_kind(compound_file(*names, "Workbook")) == "sheet"


def test_a_directory_without_end_is_bounded() -> None:
    """A chain of sectors that leads back to its start ends anyway, as a cycle of entries does."""
    raw = bytearray(compound_file("Contents"))
    struct.pack_into("<I", raw, 512 + 4, 1)
    struct.pack_into("<2I", raw, 1024 + 128 + 68, 1, 1)
    with pytest.raises(LegacyFormat):
        compound_file_kind(bytes(raw))


def test_a_huge_list_of_content_types_is_not_read() -> None:
    """A member that expands to megabytes can't be a list of content types."""
    types = b'<Override ContentType="application/vnd.ms-excel.sheet.main+xml"/>'
    assert zip_kind(zip_of({"[Content_Types].xml": types})) == "sheet"
    with pytest.raises(UnsupportedContent, match="no known kind"):
        zip_kind(zip_of({"[Content_Types].xml": types + Random(1).randbytes(1 << 20)}))


def test_an_embedded_part_does_not_decide() -> None:
    """A Word document with a spreadsheet inside names the spreadsheet's type, but not as main."""
    prefix = "application/vnd.openxmlformats-officedocument"
    types = (
        f'<Default Extension="xlsx" ContentType="{prefix}.spreadsheetml.sheet"/>'
        f"<Override ContentType='{prefix}.wordprocessingml.document.main+xml'/>"
    )
    assert zip_kind(zip_of({"[Content_Types].xml": types})) == "word"
