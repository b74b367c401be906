"""Values of fields, and texts of annotations."""

from __future__ import annotations

from collections.abc import Sequence

from content.extractors.pdf import extract
from tests.support.pdf_files import PdfFile, PdfPage


def lines_of(page: PdfPage, fields: Sequence[tuple[str, str]] = ()) -> Sequence[str]:
    return extract(PdfFile([page], fields=fields).write()).lines


def page() -> PdfPage:
    return PdfPage().text(72, 700, "Text of the page")


def test_a_comment_follows_the_text_of_its_page() -> None:
    lines = lines_of(page().comment("Please check", "Ana").comment("No author"))

    assert lines == [
        "Text of the page",
        "",
        "Comment by Ana: Please check",
        "Comment: No author",
    ]


def test_a_field_has_its_name_and_value() -> None:
    assert lines_of(page(), [("City", "Ulm"), ("Street", ""), ("Agreed", "Off")]) == [
        "Text of the page",
        "",
        "City: Ulm",
    ]


def test_the_values_of_a_form_alone_are_text() -> None:
    result = extract(PdfFile([PdfPage().scan()], fields=[("City", "Ulm")]).write())

    assert result.lines == ["City: Ulm"]
    assert result.warnings == ()


def test_the_place_of_a_note_is_its_rectangle() -> None:
    result = extract(PdfFile([page().comment("A note")]).write())

    assert result.places[result.place_of[-1]].box == (10, 10, 30, 30)


def test_empty_and_hidden_annotations_are_left_out() -> None:
    silent = page().comment("")
    silent.annotations += [
        "<< /Type /Annot /Subtype /Text /Rect [0 0 9 9] /Contents (hidden) /F 2 >>",
        "<< /Type /Annot /Subtype /Link /Rect [0 0 9 9] /Contents (a link) >>",
        "<< /Type /Annot /Subtype /Popup /Rect [0 0 9 9] /Contents (a popup) >>",
    ]

    assert lines_of(silent) == ["Text of the page"]


def test_a_note_of_several_lines_is_one_line() -> None:
    assert lines_of(page().comment(r"two\nlines"))[-1] == "Comment: two lines"
