"""Small whole documents of every kind, which mutations and bombs start from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from bench.content.hostile.containers import Parts, pdf, stream, zipped

__all__ = ["ARCHIVES", "TEXTS", "document_pdf", "originals"]

_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'


def _types(main_part: str, form: str) -> str:
    return (
        f'{_XML}<Types xmlns="{_TYPES}"><Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/{main_part}" '
        f'ContentType="application/vnd.openxmlformats-officedocument.{form}.main+xml"/></Types>'
    )


def _relations(*targets: tuple[str, str]) -> str:
    links = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'{_XML}<Relationships xmlns="{_RELATIONS}">{links}</Relationships>'


def _paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


_TABLE = (
    "<w:tbl><w:tblGrid><w:gridCol/><w:gridCol/></w:tblGrid>"
    + "".join(
        f"<w:tr><w:tc>{_paragraph(item)}</w:tc><w:tc>{_paragraph(amount)}</w:tc></w:tr>"
        for item, amount in (("Item", "Amount"), ("Sluice gate", "950"))
    )
    + "</w:tbl>"
)
_WORD_PARTS: Parts = {
    "[Content_Types].xml": _types("word/document.xml", "wordprocessingml.document"),
    "_rels/.rels": _relations(("officeDocument", "word/document.xml")),
    "word/document.xml": f'{_XML}<w:document xmlns:w="{_WORD}" xmlns:r="{_OFFICE}"><w:body>'
    f"{_paragraph('Weirs of the river', 'Heading1')}{_paragraph('They slow the water.')}{_TABLE}"
    "<w:sectPr/></w:body></w:document>",
    "word/_rels/document.xml.rels": _relations(("styles", "styles.xml")),
    "word/styles.xml": f'{_XML}<w:styles xmlns:w="{_WORD}"><w:style w:type="paragraph" '
    'w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>',
}
_SHEET_PARTS: Parts = {
    "[Content_Types].xml": _types("xl/workbook.xml", "spreadsheetml.sheet"),
    "_rels/.rels": _relations(("officeDocument", "xl/workbook.xml")),
    "xl/workbook.xml": f'{_XML}<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>'
    '<sheet name="Costs" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": _relations(
        ("worksheet", "worksheets/sheet1.xml"), ("sharedStrings", "sharedStrings.xml")
    ),
    "xl/worksheets/sheet1.xml": f'{_XML}<worksheet xmlns="{_SHEET}"><sheetData>'
    '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
    '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="B2"><v>950</v></c></row>'
    "</sheetData></worksheet>",
    "xl/sharedStrings.xml": f'{_XML}<sst xmlns="{_SHEET}"><si><t>Item</t></si><si><t>Amount</t>'
    "</si><si><t>Sluice gate</t></si></sst>",
}
_SLIDE_PARTS: Parts = {
    "[Content_Types].xml": _types("ppt/presentation.xml", "presentationml.presentation").replace(
        "</Types>",
        '<Override PartName="/ppt/slides/slide1.xml" ContentType="application/vnd.'
        'openxmlformats-officedocument.presentationml.slide+xml"/></Types>',
    ),
    "_rels/.rels": _relations(("officeDocument", "ppt/presentation.xml")),
    "ppt/presentation.xml": f'{_XML}<p:presentation xmlns:p="{_SLIDE}" xmlns:r="{_OFFICE}">'
    '<p:sldIdLst><p:sldId id="256" r:id="rId1"/></p:sldIdLst></p:presentation>',
    "ppt/_rels/presentation.xml.rels": _relations(("slide", "slides/slide1.xml")),
    "ppt/slides/slide1.xml": f'{_XML}<p:sld xmlns:p="{_SLIDE}" xmlns:a="{_DRAWING}"><p:cSld>'
    '<p:spTree><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr>'
    '<p:grpSpPr/><p:sp><p:nvSpPr><p:cNvPr id="2" name="Title"/><p:cNvSpPr/><p:nvPr>'
    '<p:ph type="title"/></p:nvPr></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/><a:p><a:r>'
    "<a:t>Weirs of the river</a:t></a:r></a:p></p:txBody></p:sp></p:spTree></p:cSld></p:sld>",
    "ppt/slides/_rels/slide1.xml.rels": _relations(),
}
_CHAPTER = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Weirs</title></head><body>'
    "<h1>Weirs of the river</h1><p>They slow the water.</p></body></html>"
)
_BOOK_PARTS: Parts = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": f"{_XML}<container "
    'xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles><rootfile '
    'full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
    "book.opf": f'{_XML}<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Rivers</dc:title></metadata><manifest>'
    '<item id="c1" href="c1.xhtml" media-type="application/xhtml+xml"/></manifest><spine>'
    '<itemref idref="c1"/></spine></package>',
    "c1.xhtml": _CHAPTER,
}
_VALUES_PARTS: Parts = {
    "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
    "content.xml": f'{_XML}<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:'
    'xmlns:office:1.0" xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>'
    '<table:table table:name="Costs"><table:table-row><table:table-cell '
    'office:value-type="string"><text:p>Item</text:p></table:table-cell><table:table-cell '
    'office:value-type="float" office:value="950"><text:p>950</text:p></table:table-cell>'
    "</table:table-row></table:table></office:spreadsheet></office:body>"
    "</office:document-content>",
    "META-INF/manifest.xml": f"{_XML}<manifest:manifest "
    'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
}
_DAY = [
    {"type": "message", "user": "U1", "ts": "1452837318.000002", "text": "Which gate leaks?"},
    {"type": "message", "user": "U2", "ts": "1452837319.000002", "text": "The sluice gate."},
]
_CHAT_PARTS: Parts = {
    "channels.json": json.dumps([{"id": "C1", "name": "weirs"}]),
    "users.json": json.dumps([{"id": "U1", "name": "ana"}, {"id": "U2", "name": "ben"}]),
    "weirs/2016-01-15.json": json.dumps(_DAY),
}
ARCHIVES: Mapping[str, Parts] = {
    "docx": _WORD_PARTS,
    "xlsx": _SHEET_PARTS,
    "pptx": _SLIDE_PARTS,
    "epub": _BOOK_PARTS,
    "ods": _VALUES_PARTS,
    "zip": _CHAT_PARTS,
}
"""Members of the archive of each format, by its suffix."""

_API: dict[str, Any] = {
    "openapi": "3.0.0",
    "info": {"title": "Gates", "version": "1"},
    "paths": {
        "/gates/{id}": {
            "get": {
                "summary": "Read the state of a gate",
                "parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}],
                "responses": {
                    "200": {
                        "description": "A gate",
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Gate"}}
                        },
                    }
                },
            }
        }
    },
    "components": {
        "schemas": {"Gate": {"type": "object", "properties": {"open": {"type": "boolean"}}}}
    },
}
_NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Discharge of a weir"]},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "coefficient = 0.62",
            "outputs": [{"output_type": "stream", "name": "stdout", "text": ["0.62\n"]}],
        },
    ],
}
_MAIL = (
    "From: Ana <ana@example.org>\nTo: ben@example.org\nSubject: Spillway\n"
    "Date: Mon, 2 Mar 2026 10:14:00 +0000\nMIME-Version: 1.0\n"
    'Content-Type: multipart/mixed; boundary="b"\n\n'
    "--b\nContent-Type: text/plain; charset=utf-8\n\nThe spillway concrete has a crack.\n"
    '--b\nContent-Type: text/csv\nContent-Disposition: attachment; filename="a.csv"\n\n'
    "Item,Amount\nGate,950\n--b--\n"
)
TEXTS: Mapping[str, str] = {
    "html": _CHAPTER.replace("</p>", "</p><table><tr><th>Item<td>Amount</table><pre>open()</pre>"),
    "json": json.dumps(_API, indent=1),
    "yaml": "openapi: 3.0.0\ninfo: {title: Gates, version: '1'}\npaths:\n  /gates:\n    get:\n"
    "      summary: List gates\n      responses: {'200': {description: Gates}}\n",
    "ipynb": json.dumps(_NOTEBOOK),
    "eml": _MAIL,
    "mbox": f"From ana@example.org Mon Mar  2 10:14:00 2026\n{_MAIL}\n",
    "csv": "Item,Amount\nSluice gate,950\nTurbine,4200\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ana>Which gate leaks?\n",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\nAna: Which gate leaks?\n",
    "jsonl": '{"role": "user", "content": "Which gate leaks?"}\n',
    "md": "# Weirs\n\nThey slow the water.\n\n```python\nopen(gate)\n```\n\n| a | b |\n|---|---|\n",
    "rst": "Weirs\n=====\n\nThey slow the water.\n\n.. code-block:: python\n\n   open(gate)\n",
    "py": "def open(gate: str) -> bool:\n    return gate == 'sluice'\n",
}
"""Content of each format that is written as text, by its suffix."""


def document_pdf(content: bytes = b"", page: str = "", entries: str = "") -> bytes:
    """Write a PDF of one page. ``entries`` are those of the catalogue."""
    text = b"BT /F1 12 Tf 72 700 Td (Weirs slow the water of a river) Tj ET\n"
    return pdf(
        [
            f"<< /Type /Catalog /Pages 2 0 R {entries} >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            (
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
                f"/Resources << /Font << /F1 5 0 R >> >> {page} >>"
            ),
            stream(text + content),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        ]
    )


@cache
def originals() -> Mapping[str, bytes]:
    """Bytes of a whole document of each format, by its suffix."""
    return {
        "pdf": document_pdf(),
        **{suffix: zipped(parts) for suffix, parts in ARCHIVES.items()},
        **{suffix: text.encode() for suffix, text in TEXTS.items()},
    }
