"""Hostile archives: Office files, books and exports that lie about their members or expand."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator, Mapping

from bench.content.hostile.containers import (
    Parts,
    compound_file,
    doubled,
    overlapping_zip,
    patched,
    zipped,
)
from bench.content.hostile.originals import ARCHIVES, TEXTS

__all__ = ["archives"]

_BODIES: Mapping[str, str] = {
    "docx": "word/document.xml",
    "xlsx": "xl/worksheets/sheet1.xml",
    "pptx": "ppt/slides/slide1.xml",
    "epub": "c1.xhtml",
    "ods": "content.xml",
    "zip": "weirs/2016-01-15.json",
}
"""Member with the text, by suffix."""
_OUTSIDE = ("../../../etc/passwd", "/etc/passwd", "C:\\x", "a\0b", "a" * 60_000, "\u202e.xml")
_LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))


def archives() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file; the name ends in its suffix."""
    for suffix, body in _BODIES.items():
        for name, parts in _bodies(suffix, body):
            yield f"{name}.{suffix}", zipped(parts)
        for name, raw in _directories(ARCHIVES[suffix], body):
            yield f"{name}.{suffix}", raw
    yield from _words()
    yield from _sheets()
    yield from _slides()
    yield from _books()
    yield from _chats()
    yield from _compound_files()


def _with(suffix: str, name: str, content: str | bytes) -> Parts:
    return {**ARCHIVES[suffix], name: content}


def _replaced(suffix: str, old: str, new: str) -> Parts:
    text = ARCHIVES[suffix][_BODIES[suffix]]
    assert isinstance(text, str)
    return _with(suffix, _BODIES[suffix], text.replace(old, new))


def _bodies(suffix: str, body: str) -> Iterator[tuple[str, Parts]]:
    """Yield archives with another body."""
    text = str(ARCHIVES[suffix][body])
    yield "blanks", _with(suffix, body, b" " * 2**26)
    yield "empty-body", _with(suffix, body, b"")
    yield "no-body", {name: part for name, part in ARCHIVES[suffix].items() if name != body}
    yield "nested", _with(suffix, body, zipped({body: zipped({body: zipped({body: text})})}))
    yield "deep", _with(suffix, body, "<a>" * 50_000)
    if suffix != "zip":
        declared = text.partition("?>")
        laughs = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{_LAUGHS}]>'
        outside = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l11 SYSTEM "file:///etc/passwd">]>'
        for name, head in (("laughs", laughs), ("outside-entity", outside)):
            yield name, _with(suffix, body, head + declared[2].replace("river", "&l11;"))
        yield "wide", _with(suffix, body, declared[2].replace("><", "><a/><", 1) + "<b/>" * 300_000)


def _directories(parts: Parts, body: str) -> Iterator[tuple[str, bytes]]:
    """Yield archives whose directory is hostile."""
    whole = zipped(parts)
    yield "members", zipped({**parts, **{f"m{number}": b"" for number in range(2_500)}})
    yield "outside", zipped({**dict.fromkeys(_OUTSIDE, "root:x:0:0"), **parts})
    yield "password", patched(whole, 8, b"\x01\x00")
    yield "unknown-method", patched(whole, 10, b"\x63\x00")
    yield "small-announced", patched(whole, 24, struct.pack("<I", 3))
    yield "large-announced", patched(whole, 24, struct.pack("<I", 0xFFFFFFF0))
    yield "far-member", patched(whole, 42, struct.pack("<I", 0xFFFFFFF0))
    yield "without-directory", whole[: whole.rfind(b"PK\x05\x06")]
    yield "by-lzma", zipped(parts, zipfile.ZIP_LZMA)


def _words() -> Iterator[tuple[str, bytes]]:
    table = "<w:tbl><w:tr><w:tc>"
    row = "<w:tr>" + "<w:tc><w:tcPr><w:gridSpan w:val='{}'/></w:tcPr><w:p/></w:tc>" * 9 + "</w:tr>"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:basedOn w:val="Heading{1 - n}"/>'
        "</w:style>"
        for n in (0, 1)
    )
    for name, new in (
        ("nested-tables", table * 60 + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * 60),
        ("wide-cells", f"<w:tbl>{row.format(*[999_999_999] * 9)}</w:tbl>"),
        ("cells-of-less", f"<w:tbl>{row.format(*[-9] * 9)}</w:tbl>"),
        ("cells-of-words", f"<w:tbl>{row.format(*['many'] * 9)}</w:tbl>"),
        ("grid", "<w:tbl>" + row.format(*[60] * 9) * 300 + "</w:tbl>"),
        ("deep-list", "<w:p><w:pPr><w:numPr><w:ilvl w:val='99999999'/></w:numPr></w:pPr></w:p>"),
        ("deep-runs", "<w:ins>" * 180 + "<w:r><w:t>x</w:t></w:r>" + "</w:ins>" * 180),
        ("many-runs", "<w:p>" + "<w:r><w:t>a </w:t></w:r>" * 60_000 + "</w:p>"),
    ):
        yield f"{name}.docx", zipped(_replaced("docx", "<w:sectPr/>", new))
    head = '<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    style = _with("docx", "word/styles.xml", f"{head}{styles}</w:styles>")
    yield "style-of-itself.docx", zipped(style)
    link = ARCHIVES["docx"]["_rels/.rels"]
    outside = str(link).replace("word/document.xml", "../../../../etc/passwd")
    yield "main-part-outside.docx", zipped(_with("docx", "_rels/.rels", outside))
    yield "doubled-body.docx", doubled("word/document.xml", ["<a/>"] * 50)
    yield "overlapping.docx", overlapping_zip("[Content_Types].xml", " " * 60_000, 1_900)


def _sheets() -> Iterator[tuple[str, bytes]]:
    far = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    rows = "".join(
        f'<row r="{row}">' + "".join(f"<c><v>{cell}</v></c>" for cell in range(1_000)) + "</row>"
        for row in range(3, 1_003)
    )
    for name, new in (
        ("far-cell", far),
        ("million-cells", f"{rows}</sheetData>"),
        ("merged-all", '</sheetData><mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells>'),
        (
            "merged-often",
            "</sheetData><mergeCells>" + '<mergeCell ref="A1:B2"/>' * 50_000 + "</mergeCells>",
        ),
        ("merged-nowhere", '</sheetData><mergeCells><mergeCell ref="B2:A1:"/></mergeCells>'),
        ("no-such-string", '<row r="9"><c t="s"><v>99999999</v></c></row></sheetData>'),
        ("no-such-row", '<row r="-9"><c r="A0"><v>1</v></c></row></sheetData>'),
        ("no-such-column", '<row r="9"><c r="ZZZZZZZ9"><v>1</v></c></row></sheetData>'),
        ("no-number", '<row r="9"><c><v>1e999</v></c><c><v>NaN</v></c></row></sheetData>'),
        ("no-date", '<row r="9"><c t="d"><v>9999999-99-99</v></c></row></sheetData>'),
        (
            "formula",
            ('<row r="9"><c><f t="shared" ref="A1:XFD1048576" si="0">A1</f></c></row></sheetData>'),
        ),
    ):
        yield f"{name}.xlsx", zipped(_replaced("xlsx", "</sheetData>", new))
    strings = "<sst>" + "<si><t>" + "x" * 40_000 + "</t></si></sst>"
    cells = '<c t="s"><v>0</v></c>' * 5_000
    often = {**_replaced("xlsx", "</sheetData>", f'<row r="9">{cells}</row></sheetData>')}
    yield "string-often.xlsx", zipped({**often, "xl/sharedStrings.xml": strings})
    book = str(ARCHIVES["xlsx"]["xl/workbook.xml"])
    sheet = '<sheet name="Costs" sheetId="1" r:id="rId1"/>'
    yield (
        "sheets.xlsx",
        zipped(_with("xlsx", "xl/workbook.xml", book.replace(sheet, sheet * 20_000))),
    )
    outside = str(ARCHIVES["xlsx"]["xl/_rels/workbook.xml.rels"]).replace("worksheets", "../../..")
    yield "sheet-outside.xlsx", zipped(_with("xlsx", "xl/_rels/workbook.xml.rels", outside))
    for name, old, new in (
        (
            "repeated-cells",
            "<table:table-cell ",
            ('<table:table-cell table:number-columns-repeated="999999999" '),
        ),
        (
            "repeated-rows",
            "<table:table-row>",
            ('<table:table-row table:number-rows-repeated="999999999">'),
        ),
        (
            "repeated-less",
            "<table:table-cell ",
            ('<table:table-cell table:number-columns-repeated="-1" '),
        ),
        (
            "repeated-both",
            "<table:table-row>",
            (
                "<table:table-row "
                'table:number-rows-repeated="5000"><table:table-cell '
                'table:number-columns-repeated="5000" office:value-type="float" office:value="1"/>'
            ),
        ),
    ):
        yield f"{name}.ods", zipped(_replaced("ods", old, new))


def _slides() -> Iterator[tuple[str, bytes]]:
    group = (
        '<p:grpSp><p:nvGrpSpPr><p:cNvPr id="9" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr>'
        "<p:grpSpPr/>"
    )
    graphic = (
        '<p:graphicFrame><a:graphic><a:graphicData uri="http://schemas.openxmlformats.org/drawingml'
        '/2006/table"><a:tbl><a:tr><a:tc gridSpan="999999999" rowSpan="99999999"/></a:tr></a:tbl>'
        "</a:graphicData></a:graphic></p:graphicFrame>"
    )
    for name, new in (
        ("deep-groups", group * 60 + "</p:grpSp>" * 60),
        ("table-without-frame", graphic),
        ("shapes", "<p:sp><p:nvSpPr/></p:sp>" * 20_000),
    ):
        yield f"{name}.pptx", zipped(_replaced("pptx", "</p:spTree>", f"{new}</p:spTree>"))
    shown = str(ARCHIVES["pptx"]["ppt/presentation.xml"])
    slide = '<p:sldId id="256" r:id="rId1"/>'
    often = shown.replace(slide, slide * 3_000)
    yield "slide-often.pptx", zipped(_with("pptx", "ppt/presentation.xml", often))
    link = str(ARCHIVES["pptx"]["ppt/_rels/presentation.xml.rels"])
    itself = link.replace("slides/slide1.xml", "presentation.xml")
    yield (
        "slide-is-presentation.pptx",
        zipped(_with("pptx", "ppt/_rels/presentation.xml.rels", itself)),
    )


def _books() -> Iterator[tuple[str, bytes]]:
    index = str(ARCHIVES["epub"]["book.opf"])
    item = '<itemref idref="c1"/>'
    chapter = "<html><body>" + "<p>They slow the water of the river.</p>" * 2_000 + "</body></html>"
    for name, old, new in (
        ("chapter-often", item, item * 20_000),
        ("chapter-outside", 'href="c1.xhtml"', 'href="../../../etc/passwd"'),
        ("chapter-by-network", 'href="c1.xhtml"', 'href="http://127.0.0.1:9/c1.xhtml"'),
        ("chapter-is-index", 'href="c1.xhtml"', 'href="book.opf"'),
        ("no-spine", item, ""),
    ):
        parts = _with("epub", "book.opf", index.replace(old, new))
        yield f"{name}.epub", zipped({**parts, "c1.xhtml": chapter})
    rights = "<encryption><EncryptedData><CipherReference URI='c1.xhtml'/></EncryptedData>"
    yield "rights.epub", zipped(_with("epub", "META-INF/encryption.xml", f"{rights}</encryption>"))


def _chats() -> Iterator[tuple[str, bytes]]:
    day = "weirs/2016-01-15.json"
    times: tuple[object, ...] = ("1e400", "-1", "nan", "9" * 40, "", None, [], {"a": 1}, True)
    messages = [{"type": "message", "ts": ts, "thread_ts": ts, "text": ts} for ts in times]
    threads = [
        {"type": "message", "ts": str(n), "thread_ts": str((n + 1) % 5_000), "text": "x"}
        for n in range(5_000)
    ]
    yield "times.zip", zipped(_with("zip", day, json.dumps(messages)))
    yield "threads-in-a-circle.zip", zipped(_with("zip", day, json.dumps(threads)))
    yield "no-messages.zip", zipped(_with("zip", day, json.dumps({"messages": 7})))
    yield "deep-day.zip", zipped(_with("zip", day, "[" * 90_000))
    days = {f"weirs/2016-{n % 12 + 1:02}-{n % 28 + 1:02}.json": "[]" for n in range(1_500)}
    yield "days.zip", zipped({**ARCHIVES["zip"], **days})
    yield "files.zip", zipped({f"{n}.md": TEXTS["md"] for n in range(9)})


def _compound_files() -> Iterator[tuple[str, bytes]]:
    name = "Workbook".encode("utf-16-le").ljust(64, b"\0")
    entry = (
        name + struct.pack("<H2B3I", 18, 2, 1, 0, 0, 0) + b"\0" * 36 + struct.pack("<IQ", 0, 2**40)
    )
    root = "Root Entry".encode("utf-16-le").ljust(64, b"\0") + struct.pack(
        "<H2B3I", 22, 5, 1, 0xFFFFFFFF, 0xFFFFFFFF, 1
    )
    directory = root.ljust(128, b"\0") + entry.ljust(128, b"\0")
    yield "circle.xls", compound_file(directory, [0xFFFFFFFD, 1])
    yield "far-sectors.xls", compound_file(directory, [0xFFFFFFFD, 0x7FFFFFFF])
    yield "only-magic.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 200
    protected = entry.replace(name, "EncryptedPackage".encode("utf-16-le").ljust(64, b"\0"))
    yield (
        "protected.docx",
        compound_file(
            root.ljust(128, b"\0") + protected.replace(b"\x12\0", b"\x22\0", 1).ljust(128, b"\0"),
            [1],
        ),
    )
