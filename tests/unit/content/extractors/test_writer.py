"""Writer of renditions, and the texts that it cleans."""

from __future__ import annotations

import pytest

from content.extractors.texts import clean, decode, single_line, table_row, table_rule
from content.extractors.writer import RenditionWriter
from content.rendition import MOST_BYTES, Place, Section
from runtime.errors import Damaged, LimitExceeded
from tests.support.fuzzed_bytes import assert_sound

HERE = Place(fragment="here")
THERE = Place(fragment="there")


def test_lines_have_their_places_and_sections_their_rows() -> None:
    writer = RenditionWriter()
    writer.begin(2, "First\npart", label="outer > First", alone=True)
    writer.heading(2, "First\npart", HERE)
    writer.write("a\r\nb\u2028c", THERE)
    writer.begin(2, "Second")
    writer.heading(2, "Second", HERE)
    rendition = writer.rendition(" The\ttitle ", ("warning",))
    assert rendition.lines == ("## First part", "a", "b", "c", "", "## Second")
    assert rendition.places == (HERE, THERE)
    assert rendition.place_of == (0, 1, 1, 1, 1, 0)
    assert rendition.sections == (
        Section(0, 2, "First part", "outer > First", alone=True),
        Section(5, 2, "Second"),
    )
    assert (rendition.title, rendition.warnings) == ("The title", ("warning",))
    assert_sound(rendition)


def test_a_blank_line_is_written_between_lines_only_and_once() -> None:
    writer = RenditionWriter()
    writer.blank()
    writer.write("a", HERE)
    writer.blank()
    writer.blank()
    writer.write("b", HERE)
    assert writer.rendition(None).lines == ("a", "", "b")


def test_a_rendition_without_a_title_has_none() -> None:
    assert RenditionWriter().rendition(" \n").title is None


def test_text_over_the_limit_is_refused() -> None:
    writer = RenditionWriter()
    writer.write("x" * (MOST_BYTES - 1), HERE)
    with pytest.raises(LimitExceeded, match="8 MiB"):
        writer.write("", HERE)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"gr\xc3\xbc\xc3\x9fe", "grüße"),
        (b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe", "grüße"),
        ("grüße".encode("utf-16"), "grüße"),
        ("grüße".encode("utf-32"), "grüße"),
        (b"", ""),
    ],
)
def test_text_is_decoded_by_its_byte_order_mark(raw: bytes, text: str) -> None:
    assert decode(raw) == text


@pytest.mark.parametrize("raw", ["grüße".encode("latin-1"), b"\xff\xfe\x00"])
def test_text_in_another_encoding_is_refused(raw: bytes) -> None:
    with pytest.raises(Damaged, match="not valid UTF"):
        decode(raw)


def test_cleaning_keeps_everything_that_utf_8_can_encode() -> None:
    assert clean("a\0b\x1b[1m\ud800\tc\N{GRINNING FACE}") == "ab[1m\ufffd\tc\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" a\n\n b ", "a b"),
        ("0123456789", "0123456789"),
        ("01234567890", "012345678…"),
        ("01234567 90", "01234567…"),
        (" " * 100 + "late", "…"),
    ],
)
def test_a_single_line_is_bounded(text: str, line: str) -> None:
    assert single_line(text, 10) == line


def test_a_bar_in_a_table_does_not_part_cells() -> None:
    assert table_row(["a|b", "c"]) == "| a\\|b | c |"
    assert table_rule(2) == "| --- | --- |"
