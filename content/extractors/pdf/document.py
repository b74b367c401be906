"""Document as pdfium opens it: its pages, properties and attachments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pypdfium2  # noqa: F401 -- initializes the library
import pypdfium2.raw as pdfium

from content.rendition import Box
from runtime.errors import Damaged, Encrypted, LimitExceeded

__all__ = ["MOST_PAGES", "Document", "OpenPage", "open_document", "read_string"]

MOST_PAGES = 2_000
_MOST_STRING_BYTES = 1 << 20
_LOCKED = frozenset({pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY})
_LETTER = Box(0.0, 0.0, 612.0, 792.0)


class OpenPage:
    """One page with its text, as handles of pdfium."""

    def __init__(self, handle: Any, text: Any) -> None:
        self.handle = handle
        self.text = text

    @property
    def box(self) -> Box:
        """Visible part of the page, in points; US Letter if the page has none."""
        rect = pdfium.FS_RECTF()
        if not pdfium.FPDF_GetPageBoundingBox(self.handle, rect):
            return _LETTER
        return Box(rect.left, rect.bottom, rect.right, rect.top)


class Document:
    """Open document. ``forms`` is pdfium's handle of its fields, None without fields."""

    def __init__(self, handle: Any, forms: Any) -> None:
        self.handle = handle
        self.forms = forms
        self.page_count: int = pdfium.FPDF_GetPageCount(handle)

    @contextmanager
    def page(self, index: int) -> Iterator[OpenPage | None]:
        """Open a page, from 0. The context is None if the page is damaged."""
        handle = pdfium.FPDF_LoadPage(self.handle, index)
        text = pdfium.FPDFText_LoadPage(handle) if handle else None
        try:
            yield OpenPage(handle, text) if text else None
        finally:
            if text:
                pdfium.FPDFText_ClosePage(text)
            if handle:
                pdfium.FPDF_ClosePage(handle)

    @property
    def title(self) -> str:
        """Title among the document's properties, on one line."""
        return " ".join(read_string(pdfium.FPDF_GetMetaText, self.handle, b"Title\0").split())

    @property
    def attachment_count(self) -> int:
        """Number of files inside the document."""
        count: int = pdfium.FPDFDoc_GetAttachmentCount(self.handle)
        return max(0, count)

    def attachments(self, most: int) -> Sequence[str]:
        """Names of the first ``most`` files inside the document."""
        names = []
        for index in range(min(most, self.attachment_count)):
            attachment = pdfium.FPDFDoc_GetAttachment(self.handle, index)
            if attachment:
                names.append(read_string(pdfium.FPDFAttachment_GetName, attachment))
        return names


@contextmanager
def open_document(raw: bytes) -> Iterator[Document]:
    """Open a document from its bytes.

    Raises:
        Encrypted: it does not open without a password.
        Damaged: the bytes are not a document, or one without pages.
        LimitExceeded: it has more than 2,000 pages.
    """
    handle = pdfium.FPDF_LoadMemDocument64(raw, len(raw), None)
    if not handle:
        if pdfium.FPDF_GetLastError() in _LOCKED:
            raise Encrypted("the PDF is protected by a password", "save it without a password")
        raise _damaged("the bytes are not a PDF that can be read")
    forms = config = None
    try:
        pages = pdfium.FPDF_GetPageCount(handle)
        if pages < 1:
            raise _damaged("the PDF has no pages that can be read")
        if pages > MOST_PAGES:
            raise LimitExceeded(
                f"the PDF has {pages:,} pages, over the limit of {MOST_PAGES:,}",
                "divide it and publish the parts",
            )
        if pdfium.FPDF_GetFormType(handle) != pdfium.FORMTYPE_NONE:
            config = pdfium.FPDF_FORMFILLINFO(version=2)  # pdfium keeps the address of it
            forms = pdfium.FPDFDOC_InitFormFillEnvironment(handle, config)
        yield Document(handle, forms)
    finally:
        if forms:
            pdfium.FPDFDOC_ExitFormFillEnvironment(forms)
        pdfium.FPDF_CloseDocument(handle)


def _damaged(message: str) -> Damaged:
    return Damaged(message, "save it again with the program that made it, and publish that")


def read_string(function: Callable[..., int], *arguments: Any) -> str:
    """Call a function of pdfium that writes UTF-16; return "" if the text is over 1 MiB."""
    length = function(*arguments, None, 0)  # bytes, with the zero at the end
    if not 2 < length <= _MOST_STRING_BYTES:
        return ""
    buffer = (ctypes.c_ushort * (length // 2 + 1))()
    function(*arguments, buffer, length)
    return bytes(buffer)[: length - 2].decode("utf-16-le", "ignore")
