"""Extraction of slides."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml
from pptx.util import Inches

from content.extractors.slides import extract
from content.rendition import Rendition, Section
from runtime.errors import Damaged, Encrypted, LegacyFormat
from tests.support.fuzzed_bytes import (
    assert_sound,
    renditions_of,
    variants,
    variants_of_members,
    zipped,
)

DATA = Path(__file__).parents[3] / "data/content"
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_TITLE_AND_CONTENT = 1
_TITLE_ONLY = 5
_BLANK = 6


def _extracted(raw: bytes) -> Rendition:
    rendition = extract(raw)
    assert_sound(rendition)
    return rendition


def _lines(fill: Callable[[Any], None], layout: int = _BLANK) -> list[str]:
    """Return the lines of one slide, without its heading and blank lines."""
    presentation = Presentation()
    fill(presentation.slides.add_slide(presentation.slide_layouts[layout]))
    buffer = io.BytesIO()
    presentation.save(buffer)
    return [line for line in _extracted(buffer.getvalue()).lines if line][1:]


def _box(shapes: Any, text: str, left: float, top: float) -> Any:
    box = shapes.add_textbox(Inches(left), Inches(top), Inches(1), Inches(1))
    box.text_frame.text = text
    return box


def test_each_slide_is_a_section_with_its_number() -> None:
    rendition = _extracted((DATA / "slides/sample-presentation.pptx").read_bytes())
    assert rendition.title == "Title Slide"
    assert [(section.level, section.name) for section in rendition.sections] == [
        (2, "Slide 1: Title Slide"),
        (2, "Slide 2: This is the first content slide"),
        (2, "Slide 3: This is the second content slide"),
        (2, "Slide 4: This is kinda backwards, huh?"),
    ]
    row = rendition.sections[1].row
    assert rendition.lines[row : row + 6] == (
        "## Slide 2: This is the first content slide",
        "",
        "- There’s text here",  # noqa: RUF001 - the file has this apostrophe
        "- And a list of bulleted information",
        "  - With a sub-bullet",
        "  - And another one",
    )
    place = rendition.places[rendition.place_of[row + 3]]
    assert (place.page, place.fragment) == (2, "slide=2")
    assert rendition.lines[-3:] == (
        "| --- | --- | --- | --- |",
        "| 1 | A1 | B1 | C1 |",
        "| 2 | A2 | B2 | C2 |",
    )


def test_a_slide_without_a_title_has_its_number_only() -> None:
    rendition = _extracted((DATA / "slides/group-shapes-nested.pptx").read_bytes())
    assert rendition.sections == (Section(0, 2, "Slide 1"),)
    assert rendition.title is None
    assert sorted(line for line in rendition.lines[1:] if line) == list("ABCDEFGHIJ")


def test_shapes_are_read_from_the_top_then_from_the_left() -> None:
    def fill(slide: Any) -> None:
        _box(slide.shapes, "below", 1, 5)
        _box(slide.shapes, "right", 6, 1)
        group = slide.shapes.add_group_shape()
        _box(group.shapes, "grouped below", 1, 4)
        _box(group.shapes, "grouped above", 1, 3)
        _box(slide.shapes, "left", 1, 1)

    assert _lines(fill) == ["left", "right", "grouped above", "grouped below", "below"]


def test_paragraphs_of_a_text_box_are_lines_and_levels_are_bullets() -> None:
    def fill(slide: Any) -> None:
        _box(slide.shapes, "one\vline\ntwo", 1, 1)
        levels = _box(slide.shapes, "outer\ninner", 1, 3)
        levels.text_frame.paragraphs[1].level = 1

    assert _lines(fill) == ["one line", "two", "- outer", "  - inner"]


def test_merged_cells_of_a_table_repeat_their_value() -> None:
    def fill(slide: Any) -> None:
        size = (Inches(1), Inches(1), Inches(4), Inches(2))
        table = slide.shapes.add_table(3, 3, *size).table
        for row in range(3):
            for column in range(3):
                table.cell(row, column).text = f"{row}|{column}"
        for cell in (table.cell(0, 2), table.cell(2, 0)):
            cell.text = ""
        table.cell(0, 1).merge(table.cell(0, 2))
        table.cell(1, 0).merge(table.cell(2, 0))

    assert _lines(fill) == [
        "| 0\\|0 | 0\\|1 | 0\\|1 |",
        "| --- | --- | --- |",
        "| 1\\|0 | 1\\|1 | 1\\|2 |",
        "| 1\\|0 | 2\\|1 | 2\\|2 |",
    ]


def test_a_chart_is_a_table_of_its_values() -> None:
    def fill(slide: Any) -> None:
        data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
        data.categories = ["East", "West"]
        data.add_series("2023", (1.5, None))
        data.add_series("2024", (2, 3))
        size = (Inches(1), Inches(1), Inches(4), Inches(3))
        chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *size, data).chart
        chart.has_title = True
        chart.chart_title.text_frame.text = "Sales"

    assert _lines(fill) == [
        "Chart: Sales",
        "|  | 2023 | 2024 |",
        "| --- | --- | --- |",
        "| East | 1.5 | 2 |",
        "| West |  | 3 |",
    ]


def test_a_chart_that_cannot_be_read_costs_only_its_values() -> None:
    """python-pptx reads no three-dimensional areas, which must not refuse the presentation."""

    def fill(slide: Any) -> None:
        data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
        data.categories = ["East"]
        data.add_series("2023", (1.5,))
        size = (Inches(1), Inches(1), Inches(4), Inches(3))
        chart = slide.shapes.add_chart(XL_CHART_TYPE.AREA, *size, data).chart
        (plot,) = chart._chartSpace.iter(f"{_CHART}areaChart")
        plot.tag = f"{_CHART}area3DChart"

    assert _lines(fill) == ["Chart"]


def test_notes_come_last_and_footers_are_left_out() -> None:
    def fill(slide: Any) -> None:
        slide.shapes.title.text = "Title"
        slide.placeholders[1].text = "Point one\nPoint two"
        element = slide.placeholders[1].element
        slide.shapes._spTree.append(
            parse_xml(
                f'<p:sp xmlns:p="{element.nsmap["p"]}" xmlns:a="{element.nsmap["a"]}"><p:nvSpPr>'
                '<p:cNvPr id="90" name="Footer"/><p:cNvSpPr/><p:nvPr><p:ph type="ftr" idx="11"/>'
                "</p:nvPr></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/><a:p><a:r><a:t>Secret</a:t>"
                "</a:r></a:p></p:txBody></p:sp>"
            )
        )
        slide.notes_slide.notes_text_frame.text = "Say hello\nand wave"

    assert _lines(fill, _TITLE_AND_CONTENT) == [
        "- Point one",
        "- Point two",
        "Notes: Say hello",
        "and wave",
    ]


def test_a_shape_with_an_older_form_is_read_once() -> None:
    def fill(slide: Any) -> None:
        forms = "".join(
            f"<mc:{form}><p:sp><p:txBody><a:p><a:r><a:t>{form} text</a:t></a:r></a:p></p:txBody>"
            f"</p:sp></mc:{form}>"
            for form in ("Choice", "Fallback")
        )
        element = slide.shapes._spTree
        element.append(
            parse_xml(
                '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/'
                f'markup-compatibility/2006" xmlns:p="{element.nsmap["p"]}" '
                f'xmlns:a="{element.nsmap["a"]}">{forms}</mc:AlternateContent>'
            )
        )

    assert _lines(fill) == ["Choice text"]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (zipped({"word/document.xml": b"<document/>"}), Damaged),
        (b"PK\x03\x04 and no more", Damaged),
        (b"%PDF-1.4", Damaged),
        ((DATA / "sheet/stanley-cups.xlsx").read_bytes(), Damaged),
        ((DATA / "sheet/password_protected.xlsx").read_bytes(), Encrypted),
        ((DATA / "sheet/made-with-xlwt.xls").read_bytes(), LegacyFormat),
    ],
)
def test_what_is_no_presentation_is_refused(raw: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        extract(raw)


def test_damaged_presentations_are_refused_or_extracted() -> None:
    raw = (DATA / "slides/fake-power-point.pptx").read_bytes()
    _, refused = renditions_of(extract, variants(raw, seed=3, count=40))
    assert refused > 5


def test_presentations_with_damaged_members_are_refused_or_extracted() -> None:
    raw = (DATA / "slides/group-shapes-nested.pptx").read_bytes()
    extracted, refused = renditions_of(extract, variants_of_members(raw, seed=4, count=60))
    assert extracted > 5
    assert refused > 5


def test_equal_bytes_give_equal_renditions() -> None:
    raw = (DATA / "slides/sample-presentation.pptx").read_bytes()
    assert extract(raw) == extract(raw)
