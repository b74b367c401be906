"""PDFs as lines of Markdown, each with its page and box."""

from __future__ import annotations

import pytest

from content.extractors.pdf import assembly, extract
from content.rendition import Rendition
from runtime.errors import LimitExceeded, NoTextLayer
from tests.support.pdf_files import PdfFile, PdfPage, prose

LINES = ["The first line of a paragraph", "and the second one."]


def rendition(*pages: PdfPage) -> Rendition:
    return extract(PdfFile(pages).write())


def test_a_line_has_its_page_and_its_box() -> None:
    result = rendition(PdfPage(), PdfPage().text(72, 700, "Twelve words"))

    assert result.lines == ["Twelve words"]
    place = result.places[result.place_of[0]]
    assert (place.page, place.fragment) == (2, "page=2")
    assert place.box is not None
    assert (place.box.left, place.box.right) == pytest.approx((72, 72 + 12 * 5), abs=1)
    assert place.box.bottom < 700 < place.box.top


def test_paragraphs_are_parted_by_blank_lines() -> None:
    page = PdfPage().lines(72, 700, LINES).lines(72, 640, LINES)

    assert rendition(page).lines == [*LINES, "", *LINES]


def test_a_sentence_that_continues_in_the_next_column_is_not_parted() -> None:
    left = ["A sentence begins in the left column", "and it continues in the"]
    page = PdfPage().lines(72, 600, left).lines(330, 700, ["right column, above."])

    assert rendition(page).lines == [*left, "right column, above."]


def test_pages_are_parted() -> None:
    pages = [PdfPage().lines(72, 700, LINES) for _ in range(2)]

    assert rendition(*pages).lines == [*LINES, "", *LINES]


def test_boxes_are_those_of_the_page_where_its_text_is_turned() -> None:
    page = PdfPage()
    for number, line in enumerate(LINES):
        page.turned_text(300 + 12 * number, 100, line, (0, 1, -1, 0))

    result = rendition(page)

    assert result.lines == LINES
    box = result.places[result.place_of[0]].box
    assert box is not None
    assert (box.bottom, box.top) == pytest.approx((100, 100 + 5 * len(LINES[0])), abs=1)
    assert box.left < 300 < box.right < 312


def test_a_heading_is_a_line_and_a_section() -> None:
    page = (
        PdfPage().lines(72, 700, ["A heading in", "two lines"], 18).lines(72, 600, [prose(12)] * 3)
    )

    result = rendition(page)

    assert result.lines[:3] == ["# A heading in two lines", "", prose(12)]
    assert [(section.row, section.level, section.name) for section in result.sections] == [
        (0, 1, "A heading in two lines")
    ]
    box = result.places[result.place_of[0]].box
    assert box is not None
    assert box.bottom < 680 < 700 < box.top


def test_a_table_stands_in_place_of_its_words() -> None:
    page = PdfPage().text(72, 700, "Before the table.")
    for row, cells in enumerate((["Name", "Age"], ["Ana", "31"], ["Ben", "42"])):
        for column, cell in enumerate(cells):
            page.text(104 + 100 * column, 652 - 20 * row, cell)
    for x in (100, 200, 300):
        page.rule(x, 605, x, 665)
    for y in (605, 625, 645, 665):
        page.rule(100, y, 300, y)
    page.text(72, 560, "After the table.")

    assert rendition(page).lines == [
        "Before the table.",
        "",
        "| Name | Age |",
        "| --- | --- |",
        "| Ana | 31 |",
        "| Ben | 42 |",
        "",
        "After the table.",
    ]


def test_the_title_is_the_property_or_else_the_first_heading() -> None:
    page = PdfPage().text(72, 700, "The heading", 18).lines(72, 600, [prose(12)] * 3)

    assert extract(PdfFile([page], title="The property").write()).title == "The property"
    for useless in ("", "Microsoft Word - report.doc", "report.docx", "untitled", "2017-02"):
        assert extract(PdfFile([page], title=useless).write()).title == "The heading"
    assert rendition(PdfPage().lines(72, 700, LINES)).title is None


def test_pages_without_text_are_named() -> None:
    with_text = PdfPage().lines(72, 700, LINES)
    numbers = (True, False, False, True, False, True)

    result = rendition(*(with_text if has_text else PdfPage().scan() for has_text in numbers))

    assert result.warnings == ("pages 2-3, 5 hold no text",)
    assert rendition(with_text, PdfPage().scan()).warnings == ("page 2 holds no text",)
    assert rendition(with_text, PdfPage()).warnings == ()  # an empty page lacks nothing


def test_many_pages_without_text_are_counted() -> None:
    with_text = PdfPage().lines(72, 700, LINES)
    pages = [PdfPage().scan() if number % 2 else with_text for number in range(200)]

    assert rendition(*pages).warnings == ("100 pages hold no text, the first is page 2",)


def test_an_attachment_is_named() -> None:
    pages = [PdfPage().lines(72, 700, LINES)]

    result = extract(PdfFile(pages, attachment="plan.txt").write())

    assert result.warnings == ('1 attachment is not read: "plan.txt"',)


@pytest.mark.parametrize(
    "pages",
    [
        [PdfPage().scan()],
        [PdfPage().scan().text(72, 700, "Page 1")],
        [PdfPage()],
        # what is on every page of a scan is the mark of the program that made it
        [PdfPage().scan().text(72, 20, "Scanned by a program") for _ in range(4)],
    ],
)
def test_a_document_without_text_is_refused(pages: list[PdfPage]) -> None:
    with pytest.raises(NoTextLayer) as refusal:
        extract(PdfFile(pages).write())

    assert "ocrmypdf" in refusal.value.remedy


def test_a_few_letters_without_an_image_are_text() -> None:
    assert rendition(PdfPage().text(72, 400, "Hello")).lines == ["Hello"]


def test_the_size_of_a_rendition_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "MOST_BYTES", 40)

    assert rendition(PdfPage().text(72, 700, "x" * 39)).lines == ["x" * 39]
    with pytest.raises(LimitExceeded, match="8 MiB"):
        rendition(PdfPage().text(72, 700, "x" * 40))


def test_equal_bytes_give_equal_renditions() -> None:
    raw = PdfFile([PdfPage().lines(72, 700, LINES).comment("A note")]).write()

    assert extract(raw) == extract(raw)
