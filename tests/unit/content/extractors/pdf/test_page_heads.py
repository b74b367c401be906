"""Lines that pages repeat, and the numbers of pages."""

from __future__ import annotations

from content.extractors.pdf import extract
from tests.support.pdf_files import PdfFile, PdfPage

TOP, BOTTOM = 760, 30


def text_of(*pages: PdfPage) -> list[str]:
    return [line for line in extract(PdfFile(pages).write()).lines if line]


def body(number: int) -> PdfPage:
    return PdfPage().text(72, 400, f"What stands on page {'abcdefgh'[number]}")


def test_repeated_lines_of_the_outer_tenths_are_left_out() -> None:
    pages = [
        body(number).text(72, TOP, "Annual report").text(72, BOTTOM, f"Page {number + 1} of 4")
        for number in range(4)
    ]

    assert text_of(*pages) == [f"What stands on page {letter}" for letter in "abcd"]


def test_repeated_lines_in_the_middle_stay() -> None:
    pages = [body(number).text(72, 300, "Annual report") for number in range(4)]

    assert text_of(*pages).count("Annual report") == 4


def test_lines_of_few_pages_stay() -> None:
    pages = [
        body(number).text(72, TOP, "Annual report" if number < 2 else "Another line")
        for number in range(4)
    ]

    assert text_of(*pages).count("Annual report") == 2


def test_numbers_of_pages_are_left_out() -> None:
    numbers = ["iv", "5", "- 6 -", "[7]"]
    pages = [body(position).text(300, BOTTOM, number) for position, number in enumerate(numbers)]

    assert text_of(*pages) == [f"What stands on page {letter}" for letter in "abcd"]


def test_the_only_number_of_a_single_page_stays() -> None:
    assert text_of(body(0).text(300, BOTTOM, "42")) == ["What stands on page a", "42"]


def test_a_head_that_names_the_section_is_known_by_its_page_number() -> None:
    heads = ["2 Introduction", "Methods 3", "4 Methods", "Results 5", "6 Summary"]
    pages = [body(position).text(72, TOP, head) for position, head in enumerate(heads)]

    assert text_of(*pages) == [f"What stands on page {letter}" for letter in "abcde"]


def test_a_heading_that_begins_with_the_number_of_its_page_stays() -> None:
    titles = ["1 Introduction", "2 Methods", "3 Results"]
    pages = [
        body(position).text(72, 740, title, 18).lines(72, 500, ["Some more text of it"] * 3)
        for position, title in enumerate(titles)
    ]

    assert [line for line in text_of(*pages) if line.startswith("#")] == [
        f"# {title}" for title in titles
    ]
