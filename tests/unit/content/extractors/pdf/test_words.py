"""Words of a page, as pdfium reads them."""

from __future__ import annotations

import pytest

from content.extractors.pdf import words
from content.extractors.pdf.document import open_document
from content.extractors.pdf.words import WordsOfPage, cleaned, joined_text, read_words, turned
from content.rendition import Box
from runtime.errors import LimitExceeded
from tests.support.pdf_files import PdfFile, PdfPage


def words_of(page: PdfPage) -> WordsOfPage:
    with open_document(PdfFile([page]).write()) as document, document.page(0) as opened:
        assert opened is not None
        return read_words(opened.text)


def test_a_word_has_the_height_of_its_font() -> None:
    page = words_of(PdfPage().text(72, 700, "Two words", 20))

    assert [word.text for word in page.words] == ["Two", "words"]
    assert {word.font_size for word in page.words} == {20.0}
    assert page.words[1].left == pytest.approx(72 + 4 * 10, abs=1)
    assert page.words[1].right == pytest.approx(72 + 9 * 10, abs=1)


def test_a_matrix_scales_a_font() -> None:
    page = words_of(PdfPage().turned_text(72, 700, "Scaled", (12, 0, 0, 12), 1))

    assert page.words[0].font_size == 12.0


def test_lines_are_numbered() -> None:
    page = words_of(PdfPage().lines(72, 700, ["one two", "three"]))

    assert [word.line for word in page.words] == [0, 0, 1]


def test_a_hyphen_at_the_end_of_a_line_cuts_a_word() -> None:
    page = words_of(PdfPage().lines(72, 700, ["This is pros-", "perous text"]))

    assert [(word.text, word.cut) for word in page.words[2:]] == [
        ("pros", True),
        ("perous", False),
        ("text", False),
    ]
    assert page.words[2].line < page.words[3].line
    assert joined_text(page.words) == "This is prosperous text"


def test_the_hyphen_stays_before_a_capital() -> None:
    page = words_of(PdfPage().lines(72, 700, ["It is an E-", "Mail for you"]))

    assert joined_text(page.words) == "It is an E-Mail for you"


def test_characters_that_stand_apart_are_words() -> None:
    # a width of the space of zero, so that pdfium sees no gap
    page = PdfPage()
    page.content.append("BT /F1 10 Tf 72 700 Td [(12) -3000 (34)] TJ ET")

    assert [word.text for word in words_of(page).words] == ["12", "34"]


def test_the_page_is_turned_as_most_of_its_text() -> None:
    page = PdfPage().text(72, 700, "Aside")
    page.turned_text(300, 100, "Most of the text is turned", (0, 1, -1, 0))

    content = words_of(page)

    assert content.quarters == 1
    assert [word.text for word in content.words if word.aside] == ["Aside"]
    most = content.words[1]
    assert (most.left, most.right) == pytest.approx((100, 100 + 4 * 5), abs=1)


@pytest.mark.parametrize("quarters", range(-4, 5))
def test_turns_are_undone_by_turns_back(quarters: int) -> None:
    box = Box(10, 20, 40, 30)

    assert turned(turned(box, quarters), -quarters) == box


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\ufb03cient", "efficient"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\uf0b7", "•"),
        ("a\u0308", "ä"),
        ("a\x07b", "ab"),
        ("\ufeff\ufe8d\ufedd", "\u0627\u0644"),
    ],
)
def test_characters_are_those_that_people_search_for(text: str, expected: str) -> None:
    assert cleaned(text) == expected


def test_the_characters_of_a_page_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_CHARACTERS", 8)

    assert len(words_of(PdfPage().text(72, 700, "12345678")).words) == 1
    with pytest.raises(LimitExceeded):
        words_of(PdfPage().text(72, 700, "123456789"))
