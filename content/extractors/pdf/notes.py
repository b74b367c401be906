"""Notes of a page: the values of its form fields, and the text of its annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pypdfium2.raw as pdfium

from content.extractors.pdf.blocks import TextLine
from content.extractors.pdf.document import OpenPage, read_string
from content.extractors.pdf.words import cleaned, upright
from content.rendition import Box

__all__ = ["read_notes"]

MOST_ANNOTATIONS = 2_000  # of one page
_PASSWORD = 1 << 13  # flag of a field, as PDF numbers its bits
_UNCHECKED = "Off"
_WITHOUT_TEXT = frozenset({pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP})
_SIZE = 10.0


def read_notes(page: OpenPage, forms: Any) -> Sequence[TextLine]:
    """Read fields as ``Field: value`` and annotations as ``Comment by author: text``.

    ``forms`` is pdfium's handle of the document's fields, None without fields.
    """
    notes: list[TextLine] = []
    count = pdfium.FPDFPage_GetAnnotCount(page.handle)
    for index in range(min(count, MOST_ANNOTATIONS)):
        with _annotation(page.handle, index) as annotation:
            text = _note(annotation, forms) if annotation else ""
            if text:
                notes.append(TextLine(text, _box(annotation), _SIZE))
    return notes


@contextmanager
def _annotation(page: Any, index: int) -> Iterator[Any]:
    annotation = pdfium.FPDFPage_GetAnnot(page, index)
    try:
        yield annotation
    finally:
        if annotation:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _note(annotation: Any, forms: Any) -> str:
    if pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN:
        return ""
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind in _WITHOUT_TEXT:
        return ""
    if kind == pdfium.FPDF_ANNOT_WIDGET:
        return _field(annotation, forms) if forms else ""
    text = _single_line(read_string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents\0"))
    author = _single_line(read_string(pdfium.FPDFAnnot_GetStringValue, annotation, b"T\0"))
    label = f"Comment by {author}" if author else "Comment"
    return f"{label}: {text}" if text else ""


def _field(annotation: Any, forms: Any) -> str:
    """Name and value of a field; "" without a value, or if the value is a password."""
    if pdfium.FPDFAnnot_GetFormFieldFlags(forms, annotation) & _PASSWORD and (
        pdfium.FPDFAnnot_GetFormFieldType(forms, annotation) == pdfium.FPDF_FORMFIELD_TEXTFIELD
    ):
        return ""
    value = _single_line(read_string(pdfium.FPDFAnnot_GetFormFieldValue, forms, annotation))
    if not value or value == _UNCHECKED:
        return ""
    name = _single_line(
        read_string(pdfium.FPDFAnnot_GetFormFieldAlternateName, forms, annotation)
        or read_string(pdfium.FPDFAnnot_GetFormFieldName, forms, annotation)
    )
    return f"{name or 'Field'}: {value}"


def _single_line(text: str) -> str:
    return " ".join(cleaned(text).split())


def _box(annotation: Any) -> Box:
    rect = pdfium.FS_RECTF()
    if not pdfium.FPDFAnnot_GetRect(annotation, rect):
        return Box(0.0, 0.0, 0.0, 0.0)
    return upright(rect.left, rect.bottom, rect.right, rect.top)
