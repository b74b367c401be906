"""Attachments of messages, as further sections."""

from __future__ import annotations

import io
from email.message import EmailMessage

import pytest
import xlsxwriter

from content.extractors.email import attachments, extract
from content.rendition import Rendition
from tests.support.chunking import cut
from tests.support.renditions import assert_well_formed, fragments

PAGE = b"<h1>Weirs</h1><p>They slow the river.</p><h2 id=cost>Cost</h2><p>4,200 for one.</p>"


def _sheet() -> bytes:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"in_memory": True}) as workbook:
        costs = workbook.add_worksheet("Costs")
        for number, row in enumerate([("Item", "Amount"), ("Turbine", 4200), ("Gate", 950)]):
            costs.write_row(number, 0, row)
    return file.getvalue()


def _message(*files: tuple[str, str, bytes]) -> bytes:
    message = EmailMessage()
    message["From"] = "Ana <ana@example.org>"
    message["Subject"] = "Plans"
    message.set_content("See the files.")
    for name, media_type, raw in files:
        kind, _, subtype = media_type.partition("/")
        message.add_attachment(raw, maintype=kind, subtype=subtype, filename=name)
    return message.as_bytes()


def _extracted(*files: tuple[str, str, bytes]) -> Rendition:
    rendition = extract(_message(*files))
    assert_well_formed(rendition)
    return rendition


def test_an_attachment_is_a_section_with_places_of_its_own() -> None:
    """The lines of a sheet cite the attachment and its cells, and no page of the message."""
    rendition = _extracted(("costs & more.xlsx", "application/octet-stream", _sheet()))
    assert "Attachments: costs & more.xlsx" in rendition.lines
    assert [(section.level, section.name, section.alone) for section in rendition.sections] == [
        (1, "Plans", False),
        (1, "Attachment costs & more.xlsx", True),
        (2, "Costs", False),
    ]
    assert fragments(rendition)["| Turbine | 4200 |"].startswith(
        "attachment=costs %26 more.xlsx&Costs!A"
    )
    assert {place.page for place in rendition.places} == {None}
    assert rendition.places[-1].speakers == ("Ana",)
    assert rendition.warnings == ()


def test_a_chunk_cites_the_attachment() -> None:
    """The text of a message and of its attachment are in chunks of their own."""
    raw = _message(("weirs.html", "text/html", PAGE))
    message, weirs = cut("plans.eml", raw)
    assert (message.locator or {})["fragment"] == "message"
    assert (weirs.locator or {})["fragment"] == "attachment=weirs.html"
    assert "They slow the river." in weirs.content


@pytest.mark.parametrize(
    ("name", "media_type", "raw", "line"),
    [
        ("notes.txt", "text/plain", b"Bring boots.", "Bring boots."),
        ("notes.md", "application/octet-stream", b"# Notes\n\nBring boots.", "Bring boots."),
        ("level.py", "application/octet-stream", b"level = 3\n", "level = 3"),
        ("levels.csv", "text/csv", b"river,level\nElbe,3\n", "| Elbe | 3 |"),
        ("page.html", "text/html", PAGE, "They slow the river."),
    ],
)
def test_files_of_each_kind_are_extracted(
    name: str, media_type: str, raw: bytes, line: str
) -> None:
    """Text, code and documents are extracted by their kind."""
    rendition = _extracted((name, media_type, raw))
    assert any(line in text for text in rendition.lines)
    assert rendition.warnings == ()


@pytest.mark.parametrize(
    ("name", "media_type", "raw"),
    [
        ("broken.pdf", "application/pdf", b"%PDF-1.7 broken"),
        ("secret.xlsx", "application/octet-stream", b"PK\x03\x04broken"),
        ("photo.jpg", "application/octet-stream", b"\xff\xd8\xff\0"),
        ("signature.asc", "application/pgp-signature", b"-----BEGIN PGP SIGNATURE-----\n"),
        ("mail.eml", "application/octet-stream", b"From: Ben\nSubject: Inner\n\ntext"),
        ("empty.txt", "text/plain", b""),
    ],
)
def test_a_refused_attachment_is_a_warning(name: str, media_type: str, raw: bytes) -> None:
    """The message is extracted without the attachment."""
    rendition = _extracted((name, media_type, raw))
    assert rendition.lines[-1] == f"Attachments: {name}"
    assert rendition.warnings == (f"attachments that were not extracted: {name}",)


def test_attachments_beyond_the_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first attachments are extracted, and only up to their limit of bytes."""
    files = [(f"{number}.txt", "text/plain", b"text " * 10) for number in range(3)]
    monkeypatch.setattr(attachments, "MOST_ATTACHMENTS", 2)
    assert _extracted(*files).warnings == ("attachments that were not extracted: 2.txt",)
    monkeypatch.undo()
    monkeypatch.setattr(attachments, "MOST_ATTACHMENT_BYTES", 60)
    assert _extracted(*files).warnings == ("attachments that were not extracted: 1.txt, 2.txt",)


def test_an_attachment_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message keeps its text when an attachment would exceed the size of a rendition."""
    monkeypatch.setattr("content.extractors.draft.MOST_BYTES", 2_000)
    rendition = _extracted(("long.txt", "text/plain", b"text\n" * 400))
    assert rendition.warnings == ("attachments that were not extracted: long.txt",)


def test_an_error_of_a_parser_concerns_its_attachment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any error of an extractor is a warning."""

    def fails(kind: str, raw: bytes) -> Rendition:
        raise ZeroDivisionError

    monkeypatch.setattr(attachments, "extract", fails)
    rendition = _extracted(("page.html", "text/html", PAGE))
    assert rendition.warnings == ("attachments that were not extracted: page.html",)
