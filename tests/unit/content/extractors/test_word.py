"""Extraction of Word documents."""

from __future__ import annotations

import io
import zipfile

import pytest

from content.extractors.word import extract
from runtime.errors import Damaged, LegacyFormat, LimitExceeded, NoTextLayer
from tests.support.renditions import (
    DATA,
    assert_well_formed,
    assert_withstands_damage,
    fragments,
)

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_NAMESPACES = (
    f'xmlns:w="{_W}" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:v="urn:schemas-microsoft-com:vml"'
)
_STYLES = """
<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Chapter of Mine"/>
  <w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Derived"><w:name w:val="Derived"/>
  <w:basedOn w:val="Own"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
<w:style w:type="paragraph" w:styleId="Titel"><w:name w:val="Title"/></w:style>
"""


def _paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def _document(body: str, **parts: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        main = f"<w:document {_NAMESPACES}><w:body>{body}</w:body></w:document>"
        archive.writestr("word/document.xml", main)
        relations = ""
        for name, content in {"styles": _STYLES, **parts}.items():
            archive.writestr(f"word/{name}.xml", f"<w:{name} {_NAMESPACES}>{content}</w:{name}>")
            kind = f"{_RELATIONS}/{name}"
            relations += f'<Relationship Id="r{name}" Type="{kind}" Target="{name}.xml"/>'
        archive.writestr(
            "word/_rels/document.xml.rels", f"<Relationships>{relations}</Relationships>"
        )
    return buffer.getvalue()


def _lines(body: str, **parts: str) -> tuple[str, ...]:
    rendition = extract(_document(body, **parts))
    assert_well_formed(rendition)
    return tuple(line for line in rendition.lines if line)


@pytest.mark.parametrize(
    ("style", "line"),
    [
        ("berschrift1", "# Name"),
        ("Own", "## Name"),
        ("Derived", "## Name"),
        ("Titel", "# Name"),
        ("Unknown", "Name"),
    ],
)
def test_headings_are_recognized_by_name_and_by_outline(style: str, line: str) -> None:
    assert _lines(_paragraph("Name", style)) == (line,)


def test_the_outline_of_a_paragraph_counts_more_than_its_style() -> None:
    properties = '<w:pPr><w:pStyle w:val="Own"/><w:outlineLvl w:val="{}"/></w:pPr>'
    run = "<w:r><w:t>Name</w:t></w:r>"
    assert _lines(f"<w:p>{properties.format(3)}{run}</w:p>") == ("#### Name",)
    assert _lines(f"<w:p>{properties.format(9)}{run}</w:p>") == ("Name",)


def test_the_place_is_the_path_of_headings() -> None:
    body = (
        _paragraph("Costs", "berschrift1")
        + _paragraph("Travel", "Own")
        + _paragraph("text")
        + _paragraph("Plans", "berschrift1")
        + _paragraph("more")
    )
    rendition = extract(_document(body))
    places = fragments(rendition)
    assert places["text"] == "Costs > Travel"
    assert places["more"] == "Plans"
    assert rendition.title == "Costs"


def test_tracked_insertions_are_in_and_deletions_out() -> None:
    body = (
        '<w:p><w:ins w:id="1"><w:r><w:t>new </w:t></w:r></w:ins>'
        '<w:del w:id="2"><w:r><w:delText>old </w:delText></w:r></w:del>'
        '<w:moveFrom w:id="3"><w:r><w:t>moved </w:t></w:r></w:moveFrom>'
        "<w:r><w:t>text</w:t></w:r></w:p>"
    )
    assert _lines(body) == ("new text",)


def test_a_comment_follows_its_paragraph() -> None:
    body = (
        '<w:p><w:r><w:t>text</w:t></w:r><w:r><w:commentReference w:id="4"/></w:r></w:p>'
        + _paragraph("more")
    )
    comment = f'<w:comment w:id="4" w:author="Ana">{_paragraph("Why?")}</w:comment>'
    assert _lines(body, comments=comment) == ("text", "Comment by Ana: Why?", "more")


def test_a_text_box_is_read_once_and_after_its_paragraph() -> None:
    box = f"<w:txbxContent>{_paragraph('boxed')}</w:txbxContent>"
    body = (
        "<w:p><w:r><mc:AlternateContent>"
        f"<mc:Choice Requires='wps'><w:drawing>{box}</w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict><v:shape><v:textbox>{box}</v:textbox></v:shape></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r><w:r><w:t>text</w:t></w:r></w:p>" + _paragraph("more")
    )
    assert _lines(body) == ("text", "boxed", "more")


def test_formulas_and_descriptions_of_pictures_are_text() -> None:
    body = (
        "<w:p><w:r><w:t>a </w:t></w:r><m:oMath><m:r><m:t>x+1</m:t></m:r></m:oMath>"
        '<w:r><w:drawing><wp:docPr id="1" descr="A plot"/></w:drawing></w:r></w:p>'
    )
    assert _lines(body) == ("a x+1[A plot]",)


def test_headers_and_footers_are_read_once() -> None:
    lines = _lines(
        _paragraph("text"),
        header=_paragraph("Company") + _paragraph("Company"),
        footer=_paragraph("Confidential") + _paragraph("12"),
    )
    assert lines == ("Company", "text", "Confidential")


def test_footnotes_follow_the_text() -> None:
    body = '<w:p><w:r><w:t>text</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
    note = f'<w:footnote w:id="2">{_paragraph("the note")}</w:footnote>'
    assert _lines(body, footnotes=note) == ("text[1]", "1. the note")


def test_links_are_their_text() -> None:
    link = '<w:hyperlink w:anchor="a"><w:r><w:t>link</w:t></w:r></w:hyperlink>'
    assert _lines(f"<w:p><w:r><w:t>a </w:t></w:r>{link}</w:p>") == ("a link",)


def test_tables_are_read_with_single_columns() -> None:
    rows = "".join(f"<w:tr><w:tc>{_paragraph(text)}</w:tc></w:tr>" for text in "ab")
    assert _lines(f"<w:tbl>{rows}</w:tbl>") == ("| a |", "|---|", "| b |")


def test_pictures_without_text_are_refused() -> None:
    buffer = io.BytesIO(_document("<w:p/>"))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("word/media/image1.png", b"\x89PNG")
    with pytest.raises(NoTextLayer):
        extract(buffer.getvalue())


def test_an_empty_document_gives_no_lines() -> None:
    assert extract(_document("<w:p/>")).lines == ()


def test_an_old_document_is_refused() -> None:
    with pytest.raises(LegacyFormat):
        extract(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))


def test_entities_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(
            "word/document.xml",
            f'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
            f"<w:document {_NAMESPACES}><w:body>{_paragraph('&e;')}</w:body></w:document>",
        )
    with pytest.raises(Damaged, match="entities"):
        extract(buffer.getvalue())


def test_deep_nesting_is_refused() -> None:
    with pytest.raises((Damaged, LimitExceeded)):
        extract(_document("<w:sdt><w:sdtContent>" * 120 + "</w:sdtContent></w:sdt>" * 120))


def test_another_archive_is_damage() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(Damaged, match="no Word document"):
        extract(buffer.getvalue())


def test_real_documents_are_extracted() -> None:
    rendition = extract((DATA / "word/category-level.docx").read_bytes())
    assert_well_formed(rendition)
    assert [(section.level, section.name) for section in rendition.sections] == [
        (1, "A Heading 1"),
        (2, "A Heading 2"),
        (1, "Another Heading 1"),
    ]
    lines = extract((DATA / "word/tables-with-incomplete-rows.docx").read_bytes()).lines
    assert "| e |  |  | f |" in lines


def test_damaged_documents_are_extracted_or_refused() -> None:
    documents = [_document(_paragraph("a") * 3), (DATA / "word/docx-tables.docx").read_bytes()]
    assert_withstands_damage(extract, documents, 100)
