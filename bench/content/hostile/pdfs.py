"""Hostile PDF files: broken structure, cycles, and content that expands."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from bench.content.hostile.containers import bomb, pdf, stream
from bench.content.hostile.originals import document_pdf

__all__ = ["pdfs"]

_PAGE = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>"
_CATALOGUE = "<< /Type /Catalog /Pages 2 0 R >>"
_PAGES = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"


def pdfs() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file."""
    whole = document_pdf()
    yield from _trees()
    yield from _tables(whole)
    yield from _contents()
    yield from _objects()
    yield "header-in-garbage", b"\x00garbage\n" * 90 + whole
    yield "only-header", b"%PDF-1.7\n"
    yield "two-files", whole + whole
    yield "lines-of-header", b"%PDF-1.7\n" * 10_000


def _trees() -> Iterator[tuple[str, bytes]]:
    for name, kids in (
        ("tree-of-itself", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"),
        ("tree-of-catalogue", "<< /Type /Pages /Kids [1 0 R 3 0 R] /Count 2 >>"),
        ("two-billion-pages", "<< /Type /Pages /Kids [3 0 R] /Count 2147483647 >>"),
        ("fewer-than-no-pages", "<< /Type /Pages /Kids [3 0 R] /Count -7 >>"),
        ("page-many-times", f"<< /Type /Pages /Kids [{'3 0 R ' * 1_990}] /Count 1990 >>"),
        ("kids-are-a-number", "<< /Type /Pages /Kids 3 /Count 1 >>"),
    ):
        yield name, pdf([_CATALOGUE, kids, _PAGE, stream(b"BT (x) Tj ET")])
    deep = [f"<< /Type /Pages /Kids [{n} 0 R] /Count 1 >>" for n in range(3, 2_003)]
    yield "tree-of-2000-levels", pdf([_CATALOGUE, *deep, _PAGE])
    outline = "<< /Title (A) /Next 4 0 R /First 4 0 R /Parent 4 0 R /Dest [3 0 R /Fit] >>"
    catalogue = "<< /Type /Catalog /Pages 2 0 R /Outlines 4 0 R /Names 5 0 R >>"
    names = "<< /EmbeddedFiles 5 0 R /Kids [5 0 R] /Names [(a) 5 0 R] >>"
    yield "outline-of-itself", pdf([catalogue, _PAGES, _PAGE, outline, names])


def _tables(whole: bytes) -> Iterator[tuple[str, bytes]]:
    start = whole.rindex(b"startxref")
    for name, value in (("negative", b"-5"), ("far", b"99999999999999"), ("itself", b"9")):
        yield f"table-at-{name}", whole[:start] + b"startxref\n" + value + b"\n%%EOF\n"
    yield (
        "table-before-itself",
        whole.replace(b"/Root", b"/Prev %d /Root" % whole.rindex(b"xref\n")),
    )
    yield "table-of-a-billion", whole.replace(b"xref\n0 6", b"xref\n0 999999999")
    yield "offsets-shifted", re.sub(rb"\d{10} 00000 n", b"0000000011 00000 n", whole)
    yield (
        "encrypted-by-nothing",
        whole.replace(b"/Root", b"/Encrypt << /Filter /None /V 9 >> /Root"),
    )
    yield "encrypted-by-itself", whole.replace(b"/Root", b"/Encrypt 1 0 R /ID [(a) (b)] /Root")
    entries = "/Type /XRef /W [8 8 8] /Index [0 99999999] /Size 99999999 /Root 1 0 R"
    head = b"%PDF-1.7\n"
    raw = head + b"1 0 obj\n" + stream(b"\xff" * 240, entries) + b"\nendobj\nstartxref\n"
    yield "stream-of-a-table", raw + b"%d\n%%%%EOF" % len(head)
    objects = stream(b"1 0 2 0 3 0 ", "/Type /ObjStm /N 99999999 /First 4 /Extends 4 0 R")
    yield "objects-in-themselves", pdf([_CATALOGUE, _PAGES, _PAGE, objects])


def _contents() -> Iterator[tuple[str, bytes]]:
    inflated = zlib.compress(b"BT /F1 9 Tf 9 9 Td (x) Tj ET\n" * 40_000)
    for name, content in (
        ("thousands-of-states", b"q " * 100_000),
        ("unbalanced-states", b"Q " * 100_000),
        ("text-in-text", b"BT " * 20_000),
        ("deep-array", b"[" * 50_000 + b"] TJ"),
        ("deep-dictionary", b"/A " + b"<< /B " * 20_000),
        ("rulings", b"".join(b"%d 10 m %d 700 l S\n" % (n % 600, n % 600) for n in range(30_000))),
        ("curves", b"0 0 m " + b"1 1 2 2 3 3 c " * 50_000 + b"S"),
        ("lone-letters", b"BT /F1 1 Tf " + b"(a) Tj 3 1 Td " * 30_000 + b"ET"),
        ("numbers", b"9" * 100_000 + b" " + b"." * 1_000 + b" -" * 1_000 + b" Td"),
        ("far-positions", b"BT /F1 1e30 Tf 1e38 -1e38 Td (far) Tj ET"),
        ("unknown-operators", b"zz \x00\xff yy " * 20_000),
        (
            "draws-inline-image",
            b"BI /W 99999 /H 99999 /BPC 8 /CS /RGB ID " + b"\xff" * 999 + b" EI",
        ),
        ("string-without-end", b"BT (" + b"\\" * 9_999),
    ):
        yield name, document_pdf(content)
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources "
    fonts = "<< /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >> >>"
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects: list[str | bytes]
    form = "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>"
    for name, content, entries in (
        ("filtered-20-times", inflated, "/Filter [" + "/FlateDecode " * 20 + "]"),
        ("inflates-1200-times", bomb(48), "/Filter /FlateDecode"),
        ("inflated-text", inflated, "/Filter /FlateDecode"),
        ("filters-of-garbage", b"\xff" * 9_999, "/Filter [/LZWDecode /RunLengthDecode]"),
        (
            "predictor",
            inflated,
            (
                "/Filter /FlateDecode /DecodeParms << /Predictor 15 /Colors 99999 "
                "/Columns 999999999 >>"
            ),
        ),
        ("length-of-a-billion", b"BT ET", "/Length 999999999"),
    ):
        drawing = stream(b"/X Do " * 50, form)
        objects = [_CATALOGUE, _PAGES, page + fonts, stream(content, entries), font, drawing]
        yield name, pdf(objects)
    drawing = stream(b"/X Do " * 200, form)
    objects = [_CATALOGUE, _PAGES, page + fonts, stream(b"/X Do " * 200), font, drawing]
    yield "draws-itself", pdf(objects)
    nested: list[str | bytes] = [_CATALOGUE, _PAGES, page + fonts, stream(b"/X Do"), font]
    for number in range(6, 18):
        resources = f"/Resources << /XObject << /X {number + 1} 0 R >> >>"
        entries = f"/Type /XObject /Subtype /Form /BBox [0 0 9 9] {resources}"
        nested.append(stream(b"/X Do " * 9, entries))
    nested.append(stream(b"BT (x) Tj ET", "/Type /XObject /Subtype /Form /BBox [0 0 9 9]"))
    yield "draws-billions-of-forms", pdf(nested)


def _objects() -> Iterator[tuple[str, bytes]]:
    for name, entries in (
        ("page-without-size", "/MediaBox [0 0 0 0]"),
        ("page-turned-inside-out", "/MediaBox [9e9 9e9 -9e9 -9e9] /Rotate 91"),
        ("page-of-nothing", "/MediaBox [(a) /b null << >>] /UserUnit 1e30"),
        ("annotations", "/Annots [" + "<< /Subtype /Text /Contents (n) >> " * 5_000 + "]"),
        ("annotation-of-itself", "/Annots 3 0 R"),
    ):
        yield name, document_pdf(page=entries)
    fields = "/AcroForm << /Fields [6 0 R] /XFA (x) /DR 6 0 R >>"
    field = "<< /T (a) /FT /Tx /V (v) /Kids [6 0 R 6 0 R] /Parent 6 0 R >>"
    whole = document_pdf(entries=fields)
    yield (
        "field-of-itself",
        whole.replace(b"xref", b"6 0 obj\n" + field.encode() + b"\nendobj\nxref", 1),
    )
    whole = document_pdf(entries="/Perms << /A 1 0 R >> /Lang (" + "x" * 99_999 + ")")
    yield "long-language", whole
    widths = "/FirstChar -9 /LastChar 999999999 /Widths [1e30 -1 (a)] /ToUnicode 4 0 R"
    yield "font-without-sense", document_pdf().replace(b"/Helvetica", b"/X " + widths.encode())
    yield (
        "font-of-itself",
        document_pdf().replace(
            b"/Type1 /BaseFont /Helvetica", b"/Type0 /DescendantFonts [5 0 R] /Encoding 5 0 R"
        ),
    )
