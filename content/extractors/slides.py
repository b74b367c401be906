"""Extractor of slides (pptx, pptm, ppsx, potx): a section for each slide."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from content.extractors.archives import open_members
from content.extractors.texts import single_line, table_row, table_rule
from content.extractors.writer import RenditionWriter
from content.rendition import Place, Rendition
from runtime.errors import Damaged, HeadraceError

if TYPE_CHECKING:
    from pptx.presentation import Presentation
    from pptx.slide import Slide

__all__ = ["extract"]

_LEVEL = 2
_MOST_NESTED_GROUPS = 30
_MOST_FILLED_CELLS = 200_000
_MOST_CATEGORIES = 200
_MOST_SERIES = 50
_PARAGRAPH_CHARACTERS = 100_000
_NOT_CONTENT = frozenset({"dt", "ftr", "hdr", "sldNum"})
"""Types of placeholders that repeat on every slide: date, footer, header and slide number."""
_PLAIN_PLACEHOLDERS = frozenset({"ctrTitle", "subTitle", "title"})
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_ALTERNATIVES = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"


def extract(raw: bytes) -> Rendition:
    """Extract a presentation: titles, texts, tables, charts, diagrams and notes of its slides.

    Shapes are read from top to bottom, then from left to right.

    Raises:
        Encrypted: the presentation has a password.
        LegacyFormat: the bytes are an Office file from before 2007.
        Damaged: the bytes are not a presentation that can be read.
        LimitExceeded: the archive is too large, or there are more than 8 MiB of text.
    """
    open_members(raw)
    try:
        return _rendition(_presentation(raw))
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        # python-pptx checks little: damage shows as any error, wherever a part is missing
        raise _damaged() from error


def _presentation(raw: bytes) -> Presentation:
    from pptx.package import Package  # noqa: PLC0415 - imported for the first presentation only
    from pptx.parts.presentation import PresentationPart  # noqa: PLC0415

    part = Package.open(io.BytesIO(raw)).main_document_part
    if not isinstance(part, PresentationPart):
        raise _damaged()
    presentation: Presentation = part.presentation
    return presentation


def _damaged() -> Damaged:
    return Damaged("the presentation can't be read", "save it again with the program that made it")


def _rendition(presentation: Presentation) -> Rendition:
    writer = RenditionWriter()
    titles = []
    for number, slide in enumerate(presentation.slides, 1):
        title = slide.shapes.title
        text = single_line(title.text_frame.text, 300) if title is not None else ""
        titles.append(text)
        name = f"Slide {number}: {text}" if text else f"Slide {number}"
        place = Place(page=number, fragment=f"slide={number}")
        writer.begin(_LEVEL, name)
        writer.heading(_LEVEL, name, place)
        for block in _blocks(slide):
            writer.blank()
            writer.write(block, place)
    return writer.rendition(next(filter(None, titles), None))


def _blocks(slide: Slide) -> Iterator[str]:
    """Yield the texts of a slide: shapes in reading order, then notes; never an empty one."""
    title = slide.shapes.title
    title_id = title.shape_id if title is not None else None
    shapes = [shape for shape in slide.shapes if shape.shape_id != title_id]
    for shape in _in_order(shapes, 0):
        yield from filter(None, _texts(shape, slide))
    yield from filter(None, _alternative_texts(slide))
    if slide.has_notes_slide:
        frame = slide.notes_slide.notes_text_frame
        lines = _paragraphs(frame.paragraphs, bullets=False) if frame is not None else []
        if lines:
            yield "\n".join(["Notes: " + lines[0], *lines[1:]])


def _in_order(shapes: Iterable[Any], depth: int) -> Iterator[Any]:
    """Yield the shapes from top to bottom, and those of a group at the place of the group."""
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        members = getattr(shape, "shapes", None)
        if members is None:
            yield shape
        elif depth < _MOST_NESTED_GROUPS:
            yield from _in_order(members, depth + 1)


def _texts(shape: Any, slide: Slide) -> Iterator[str]:
    kind = _placeholder_type(shape)
    if kind in _NOT_CONTENT:
        return
    if getattr(shape, "has_table", False):
        yield _table(shape.table)
    elif getattr(shape, "has_chart", False):
        yield from _chart(shape.chart)
    elif shape.has_text_frame:
        bullets = kind is not None and kind not in _PLAIN_PLACEHOLDERS
        yield "\n".join(_paragraphs(shape.text_frame.paragraphs, bullets=bullets))
    else:
        yield _diagram(shape, slide)
        description = single_line(_description(shape), 1_000)
        yield f"[{description}]" if description else ""


def _placeholder_type(shape: Any) -> str | None:
    """Return the type of a placeholder as its file writes it; None for any other shape."""
    if not shape.is_placeholder:
        return None
    elements = shape.element.xpath(".//p:nvPr/p:ph")
    return str(elements[0].get("type", "obj")) if elements else "obj"


def _description(shape: Any) -> str:
    elements = shape.element.xpath(".//p:cNvPr")
    return str(elements[0].get("descr", "")) if elements else ""


def _paragraphs(paragraphs: Iterable[Any], *, bullets: bool) -> list[str]:
    """Return a line for each paragraph with text; ``bullets`` if there are several."""
    texts = [
        (paragraph.level, single_line(paragraph.text, _PARAGRAPH_CHARACTERS))
        for paragraph in paragraphs
    ]
    texts = [(level, text) for level, text in texts if text]
    listed = (bullets and len(texts) > 1) or any(level for level, _ in texts)
    return [f"{'  ' * level}- {text}" if listed else text for level, text in texts]


def _table(table: Any) -> str:
    rows = [
        [single_line(cell.text_frame.text, _PARAGRAPH_CHARACTERS) for cell in row.cells]
        for row in table.rows
    ]
    filled = 0
    for top, row in enumerate(table.rows):
        for left, cell in enumerate(row.cells):
            if not cell.is_merge_origin:
                continue
            for cells in rows[top : top + cell.span_height]:
                end = min(left + cell.span_width, len(cells))
                filled += end - left
                if filled <= _MOST_FILLED_CELLS:
                    cells[left:end] = [rows[top][left]] * (end - left)
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    if not any(any(row) for row in rows):
        return ""
    header, *others = rows
    return "\n".join(
        [table_row(header), table_rule(len(header)), *(table_row(row) for row in others)]
    )


def _chart(chart: Any) -> Iterator[str]:
    """Yield the title of a chart, and its values as a table: a row for each category."""
    title = chart.chart_title.text_frame.text if chart.has_title else ""
    yield f"Chart: {single_line(title, 300)}" if title.strip() else "Chart"
    for plot in chart.plots:
        try:
            series = list(islice(plot.series, _MOST_SERIES))
        except NotImplementedError:  # python-pptx reads no values of three-dimensional areas
            continue
        values = [list(islice(each.values, _MOST_CATEGORIES)) for each in series]
        names = [single_line(str(each.name or ""), 100) for each in series]
        rows = [["", *names]]
        for index, category in enumerate(islice(plot.categories, _MOST_CATEGORIES)):
            cells = [each[index] if index < len(each) else None for each in values]
            rows.append([single_line(str(category), 300), *map(_number, cells)])
        yield _markdown(rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"


def _diagram(shape: Any, slide: Slide) -> str:
    """Return the texts of a diagram (SmartArt), which are in a part of their own."""
    from pptx.oxml import parse_xml  # noqa: PLC0415 - loaded with the presentation

    references = shape.element.findall(f".//{_DIAGRAM}relIds")
    if not references:
        return ""
    part = slide.part.related_part(references[0].get(f"{_RELATION}dm"))
    return "\n".join(f"- {line}" for line in _paragraph_texts(parse_xml(part.blob)))


def _alternative_texts(slide: Slide) -> Iterator[str]:
    """Yield the texts of shapes that have an older form too, which python-pptx passes over."""
    for element in slide.shapes.element.iter(f"{_ALTERNATIVES}AlternateContent"):
        forms = [element.find(f"{_ALTERNATIVES}{form}") for form in ("Choice", "Fallback")]
        texts = [_paragraph_texts(form) for form in forms if form is not None]
        yield "\n".join(next(filter(None, texts), []))


def _paragraph_texts(element: Any) -> list[str]:
    paragraphs = (
        "".join(text.text or "" for text in paragraph.iter(f"{_DRAWING}t"))
        for paragraph in element.iter(f"{_DRAWING}p")
    )
    return [line for text in paragraphs if (line := single_line(text, _PARAGRAPH_CHARACTERS))]
