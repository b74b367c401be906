"""Headings by the outline, and by the size of the type."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from content.extractors.pdf import extract
from content.extractors.pdf.blocks import PageText, TextLine
from content.extractors.pdf.headings import find_headings
from content.extractors.pdf.outline import OutlineEntry
from content.rendition import Box
from tests.support.pdf_files import PdfFile, PdfPage, prose

Line = tuple[str, float]


def page_of(lines: Sequence[Line], number: int = 1) -> PageText:
    """Return a page of lines, each with its size, from the top."""
    blocks = [
        TextLine(text, Box(72, 700 - 30 * row, 500, 700 + size - 30 * row), size)
        for row, (text, size) in enumerate(lines)
    ]
    return PageText(number, Box(0, 0, 612, 792), 0, blocks)


BODY: Sequence[Line] = [(prose(12), 10.0)] * 6


def headings_of(lines: Sequence[Line], *entries: OutlineEntry) -> dict[str, int]:
    page = page_of([*lines, *BODY])
    headings = find_headings([page], frozenset(), entries)
    return {lines[row][0]: level for (_, row), level in headings.levels.items()}


def test_larger_sizes_are_levels_by_rank() -> None:
    lines = [("A book", 24.0), ("A chapter", 18.0), ("A section", 14.0), ("Another", 14.0)]

    assert headings_of(lines) == {"A book": 1, "A chapter": 2, "A section": 3, "Another": 3}


@pytest.mark.parametrize(
    "line",
    [
        ("Hardly larger", 11.0),
        ("x + y", 18.0),  # a formula
        ("1,234", 18.0),
        (prose(60), 18.0),
        ("Introduction . . . . . . 7", 18.0),  # of a table of contents
    ],
)
def test_other_lines_are_not_headings(line: Line) -> None:
    assert headings_of([line]) == {}


def test_large_type_that_is_frequent_is_text() -> None:
    assert headings_of([(prose(12), 14.0)] * 3) == {}


def test_titles_of_the_outline_are_headings_of_its_level() -> None:
    lines = [("1 Introduction", 10.0), ("1.1 Goals", 10.0), ("Outlook", 10.0)]
    entries = [OutlineEntry("Introduction", 1, 0), OutlineEntry("Goals", 2, 0)]

    assert headings_of(lines, *entries) == {"1 Introduction": 1, "1.1 Goals": 2}


def test_a_size_has_the_level_of_the_titles_that_are_set_in_it() -> None:
    lines = [("Preface", 18.0), ("Goals", 14.0), ("Introduction", 18.0), ("Scope", 14.0)]
    entries = [OutlineEntry("Introduction", 2, 0)]

    assert headings_of(lines, *entries) == {
        "Preface": 2,
        "Introduction": 2,
        "Goals": 3,
        "Scope": 3,
    }


def test_the_largest_line_of_equal_text_is_the_title() -> None:
    page = page_of([("Goals", 10.0), ("Goals", 10.5), *BODY])

    headings = find_headings([page], frozenset(), [OutlineEntry("Goals", 1, 0)])

    assert headings.levels == {(0, 1): 1}


def test_a_title_may_take_several_lines() -> None:
    page = page_of([("A title that is", 10.0), ("long", 10.0), *BODY])

    headings = find_headings([page], frozenset(), [OutlineEntry("A title that is long", 1, 0)])

    assert headings.levels == {(0, 0): 1, (0, 1): 1}
    assert headings.joined == {(0, 1)}


def test_a_title_that_no_line_shows_names_a_section() -> None:
    pages = [PdfPage().lines(72, 720, [prose(9)] * 5)]

    result = extract(PdfFile(pages, outline=[("Unseen title", 0)]).write())

    # the outline leads to a place below the first two lines
    assert result.lines == [prose(9)] * 2 + [""] + [prose(9)] * 3
    assert [(section.row, section.name) for section in result.sections] == [(3, "Unseen title")]


def test_running_heads_are_not_headings() -> None:
    page = page_of([("Annual report", 18.0), *BODY])

    assert find_headings([page], frozenset({(0, 0)}), []).levels == {}


def test_the_outline_is_read_with_its_pages() -> None:
    pages = [PdfPage().text(72, 700, title) for title in ("First part", "Second part")]
    outline = [("First part", 0), ("Second part", 1), ("12", 1)]

    result = extract(PdfFile(pages, outline=outline).write())

    assert [(section.name, section.level) for section in result.sections] == [
        ("First part", 1),
        ("Second part", 1),
    ]
    assert result.lines == ["# First part", "", "# Second part"]
