"""Pages that hold text, that hold none, and that are damaged."""

from __future__ import annotations

import re

import pytest

from content.extractors.pdf import extract, pages
from content.extractors.pdf.document import open_document
from content.extractors.pdf.pages import Pages, is_readable, read_pages
from content.extractors.pdf.words import Word
from runtime.errors import Damaged
from tests.support.pdf_files import PdfFile, PdfPage


def pages_of(raw: bytes) -> Pages:
    with open_document(raw) as document:
        return read_pages(document)


def with_lost_pages(raw: bytes, lost: int) -> bytes:
    """Return a document whose last pages are references to nothing."""
    listed = re.search(rb"/Kids \[([^\]]*)\]", raw)
    assert listed is not None
    kids = re.findall(rb"\d+ 0 R", listed[1])
    for position in range(len(kids) - lost, len(kids)):
        kids[position] = b"777 0 R"
    return raw.replace(listed[1], b" ".join(kids))


@pytest.mark.parametrize(
    ("text", "images", "readable"),
    [
        ("Enough text", 1, True),
        ("Page 1", 1, False),
        ("Page 1", 0, True),
        ("... --- ...", 0, False),
        ("\ufffd\ufffd\ufffda\ufffd", 0, False),
        ("\ue001\ue002\ue003ab", 0, False),
        ("Enough text \ue001", 1, True),
        ("漢字かな交じり文の例です", 1, True),
    ],
)
def test_text_is_letters_that_a_person_can_read(text: str, images: int, readable: bool) -> None:
    words = [Word(0, part, 0, 0, 9, 9, 9, 9, line=0) for part in text.split()]

    assert is_readable(words, images) is readable


def test_a_page_that_only_shows_an_image_lacks_text() -> None:
    read = pages_of(PdfFile([PdfPage().text(72, 700, "Text"), PdfPage().scan(), PdfPage()]).write())

    assert read.without_text == [2]
    assert [page.number for page in read.texts] == [1, 2, 3]


def test_a_page_of_drawn_text_lacks_text() -> None:
    drawing = PdfPage()
    for number in range(60):
        drawing.rule(72 + number, 700, 75 + number, 704)

    assert pages_of(PdfFile([drawing]).write()).without_text == [1]


def test_a_damaged_page_gives_a_warning() -> None:
    raw = PdfFile([PdfPage().text(72, 700, "Text of it")] * 4).write()

    result = extract(with_lost_pages(raw, 1))

    assert result.warnings == ("page 4 is damaged",)
    assert [line for line in result.lines if line] == ["Text of it"] * 3


def test_a_document_whose_pages_are_all_damaged_is_refused() -> None:
    raw = PdfFile([PdfPage().text(72, 700, "Text of it")] * 2).write()

    with pytest.raises(Damaged):
        extract(with_lost_pages(raw, 2))


def test_the_rulings_of_all_pages_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PdfPage()
    for row, y in enumerate((600, 620)):
        page.text(105, y - 14, f"row {row}").text(205, y - 14, f"cell {row}")
    for y in (580, 600, 620):
        page.rule(100, y, 300, y)
    for x in (100, 200, 300):
        page.rule(x, 580, x, 620)
    raw = PdfFile([page] * 2).write()
    tables_before = sum(line.startswith("| ---") for line in extract(raw).lines)
    monkeypatch.setattr(pages, "MOST_PATHS", 5)

    assert tables_before == 2
    assert sum(line.startswith("| ---") for line in extract(raw).lines) == 1
