"""Outcomes of the files of a corpus, in real parser processes."""

from __future__ import annotations

import json
from pathlib import Path

from bench.content.outcomes import figures
from tests.support.pdf_files import PdfFile, PdfPage

MAIL = b"From: Ana <ana@example.org>\r\nSubject: Weir\r\n\r\nIt has a crack.\r\n"


def test_outcomes_and_facts_are_compared_with_what_is_expected(tmp_path: Path) -> None:
    """A file without facts counts too; a false fact is named."""
    (tmp_path / "a.pdf").write_bytes(PdfFile([PdfPage().text(72, 700, "Herons nest")]).write())
    (tmp_path / "scan.pdf").write_bytes(PdfFile([PdfPage().scan()]).write())
    (tmp_path / "b.html").write_text("<html><body><h1 id=x>Weirs</h1><p>Slow</p></body></html>")
    (tmp_path / "c.eml").write_bytes(MAIL)
    (tmp_path / "d.docx").write_bytes(b"PK\x03\x04 broken")
    rows = [
        {"file": "a.pdf", "outcome": "indexed", "has": ["Herons nest"], "pages": 1},
        {"file": "scan.pdf", "outcome": "indexed"},
        {"file": "b.html", "outcome": "indexed", "headings": ["Weirs"], "anchors": ["y"]},
    ]
    (tmp_path / "expected.json").write_text(json.dumps(rows))
    result = figures(tmp_path)
    assert (result["files"], result["indexed"], result["NoTextLayer"]) == (5, 3, 1)
    assert (result["crashed"], result["hung"], result["share_opened_or_refused"]) == (0, 0, 1)
    assert (result["share_with_remedy"], result["share_of_email_opened"]) == (1, 1)
    assert round(float(result["share_as_expected"]), 3) == 0.667
    assert (result["facts"], result["share_of_facts"]) == (4, 0.75)
    assert result["false_facts"] == "anchors of b.html"
    assert "share_of_book_opened" not in result
