"""Documents that open, and documents that are refused."""

from __future__ import annotations

import pytest

from content.extractors.pdf import document, extract
from content.extractors.pdf.document import open_document
from runtime.errors import Damaged, LimitExceeded
from tests.support.pdf_files import PdfFile, PdfPage


def test_bytes_that_are_not_a_pdf_are_damaged() -> None:
    for raw in (b"", b"%PDF-1.7", b"no PDF", PdfFile([PdfPage()]).write()[:100]):
        with pytest.raises(Damaged) as refusal:
            extract(raw)
        assert refusal.value.remedy


def test_a_document_without_pages_is_damaged() -> None:
    with pytest.raises(Damaged):
        extract(PdfFile([]).write())


def test_the_number_of_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_PAGES", 2)

    with open_document(PdfFile([PdfPage()] * 2).write()) as opened:
        assert opened.page_count == 2
    with (
        pytest.raises(LimitExceeded, match="3 pages"),
        open_document(PdfFile([PdfPage()] * 3).write()),
    ):
        pass


def test_the_attachments_are_named() -> None:
    raw = PdfFile([PdfPage()], attachment="plan.txt").write()

    with open_document(raw) as opened:
        assert opened.attachment_count == 1
        assert opened.attachments(5) == ["plan.txt"]
        assert opened.attachments(0) == []


def test_the_title_is_on_one_line() -> None:
    with open_document(PdfFile([PdfPage()], title=r"Two\n lines").write()) as opened:
        assert opened.title == "Two lines"
