"""Damaged and malicious bytes: each gives a rendition or a refusal."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from content.extractors.pdf import extract
from content.rendition import Rendition
from runtime.errors import LimitExceeded, Poison
from tests.support.pdf_files import PdfFile, PdfPage, prose

FILES = Path(__file__).parents[4] / "data" / "content" / "pdf"
SEED = 1_311
MUTANTS = 120


def made() -> bytes:
    page = PdfPage().text(72, 740, "A heading", 18).lines(72, 700, [prose(9)] * 5)
    for x in (100, 200, 300):
        page.rule(x, 400, x, 480)
    for row, y in enumerate((400, 420, 440, 460, 480)):
        page.rule(100, y, 300, y).text(105, y + 4, f"row {row}").text(205, y + 4, f"cell {row}")
    page.comment("A note", "Ana")
    return PdfFile(
        [page, PdfPage().scan()], outline=[("A heading", 0)], fields=[("Field", "value")]
    ).write()


def check(rendition: Rendition) -> None:
    text = "".join(rendition.lines)
    assert not {"\r", "\n", "\0"} & set(text)
    assert text.encode()  # no lone surrogates
    assert len(rendition.lines) == len(rendition.place_of)
    assert all(0 <= place < len(rendition.places) for place in rendition.place_of)
    rows = [section.row for section in rendition.sections]
    assert rows == sorted(set(rows))
    assert not rows or 0 <= rows[0] <= rows[-1] < len(rendition.lines)


def mutants(raw: bytes, count: int) -> Iterator[bytes]:
    generator = random.Random(SEED)
    for number in range(count):
        mutant = bytearray(raw)
        if number % 4 == 0:
            del mutant[generator.randrange(len(mutant)) :]
        for _ in range(generator.choice((0, 1, 5, 40)) if number % 4 == 0 else 1 + number % 60):
            if mutant:
                mutant[generator.randrange(len(mutant))] = generator.randrange(256)
        yield bytes(mutant)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(made(), id="made"),
        pytest.param((FILES / "minimal-document.pdf").read_bytes(), id="minimal-document"),
        pytest.param((FILES / "with-attachment.pdf").read_bytes(), id="with-attachment"),
        pytest.param((FILES / "all-number-table.pdf").read_bytes(), id="all-number-table"),
    ],
)
def test_broken_bytes_give_a_rendition_or_a_refusal(raw: bytes) -> None:
    check(extract(raw))
    refusals: list[Poison] = []
    for mutant in mutants(raw, MUTANTS):
        try:
            check(extract(mutant))
        except Poison as refusal:
            refusals.append(refusal)
    assert 0 < len(refusals) < MUTANTS, f"seed {SEED} breaks nothing, or everything"
    assert all(refusal.remedy for refusal in refusals)


def test_a_circular_outline_ends() -> None:
    raw = PdfFile([PdfPage().text(72, 700, "A heading")], outline=[("A heading", 0)]).write()
    entry = re.search(rb"(\d+) 0 obj\n<< /Title \(A heading\)", raw)
    assert entry is not None
    itself = entry[1] + b" 0 R"
    links = b"] /Next " + itself + b" /First " + itself + b" >>"

    circular = raw.replace(b"/XYZ 0 700 0] >>", b"/XYZ 0 700 0" + links)

    assert circular != raw
    assert extract(circular).lines == ["# A heading"]


def test_a_form_that_draws_itself_ends() -> None:
    page = PdfPage().text(72, 700, "Text of the page").scan()
    raw = PdfFile([page]).write()
    image = re.search(rb"(\d+) 0 obj\n<< /Type /XObject /Subtype /Image [^>]*>>\nstream\n.", raw)
    assert image is not None
    resources = b"/Resources << /XObject << /Im1 " + image[1] + b" 0 R >> >>"

    circular = raw.replace(
        image[0],
        image[1] + b" 0 obj\n<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] "
        b"/Matrix [1 0 0 1 0 0] /Length 7 " + resources + b" >>\nstream\n/Im1 Do",
    )

    assert extract(circular).lines == ["Text of the page"]


def test_text_at_places_that_no_page_has_is_read() -> None:
    page = PdfPage().text(72, 700, "Text of the page").text(9e30, -9e30, "Text far away")
    page.turned_text(72, 600, "Text without extent", (0, 0, 0, 0))

    result = extract(PdfFile([page]).write())

    check(result)
    assert result.lines[0] == "Text of the page"


def test_a_page_of_very_many_rulings_ends() -> None:
    page = PdfPage().text(72, 700, "Text of the page")
    for number in range(1_500):
        page.rule(10, number / 2, 600, number / 2).rule(number / 2, 10, number / 2, 700)

    check(extract(PdfFile([page]).write()))


def test_a_page_of_very_many_characters_is_refused() -> None:
    page = PdfPage().lines(72, 700, ["x" * 5_000] * 70)

    with pytest.raises(LimitExceeded, match="characters"):
        extract(PdfFile([page]).write())


def test_a_document_of_very_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("content.extractors.pdf.pages.MOST_LINES", 9)
    page = PdfPage().lines(72, 700, ["A line of text"] * 5)

    check(extract(PdfFile([page]).write()))
    with pytest.raises(LimitExceeded, match="lines"):
        extract(PdfFile([page, page]).write())
