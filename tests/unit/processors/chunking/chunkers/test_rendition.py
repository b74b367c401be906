"""Chunks of extracted documents: sections, headers, symbols and places."""

from __future__ import annotations

import pytest

from content.detection import detect
from content.places import locator_of
from content.registry import EXTRACTORS, extract
from content.rendition import Place, Rendition, Section
from processors.chunking.chunkers.rendition import cut_rendition
from processors.chunking.types import Chunk, Source
from tests.support.chunking import check, counter
from tests.support.renditions import DATA, assert_well_formed

LIMIT_TOKENS = 120
SENTENCE = "The weir holds the water back until the gate of the mill opens. "


REFUSED = {
    "imagemagick-images.pdf",
    "libreoffice-writer-password.pdf",
    "oai-v2.0-json-petstore-separate-spec-Pet.json",
    "password_protected.xlsx",
}
DOCUMENTS = {
    path.name: path.read_bytes() for path in sorted(DATA.glob("*/*")) if path.name not in REFUSED
} | {
    "chat.json": b'[\n{"role": "user", "content": "1?"},\n{"role": "assistant", "content": "2"}\n]',
    "day.json": b'[\n{"type": "message", "ts": "1772496000.1", "user": "U1", "text": "two"}\n]',
    "film.vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ana>three\n",
    "list.mbox": b"From a@b Mon\nFrom: a@b\nSubject: four\n\nfive\n",
}


def cut(rendition: Rendition, title: str | None = None) -> list[Chunk]:
    """Checked chunks of a rendition."""
    source = Source("a", b"", "pdf", title=title)
    chunks = cut_rendition(source, rendition, LIMIT_TOKENS, counter())
    check("\n".join(rendition.lines), chunks, LIMIT_TOKENS)
    return chunks


def test_a_section_alone_shares_no_chunk_and_gives_the_symbol() -> None:
    """Short operations stay apart from each other; other short sections are merged."""
    names = ["GET /pets", "GET /pets/{id}", "schema Pet", "schema Error"]
    rendition = Rendition(
        lines=[line for name in names for line in (f"## {name}", "short", "")],
        sections=[
            Section(3 * row, 1, name, alone=name.startswith("GET"))
            for row, name in enumerate(names)
        ],
    )
    chunks = cut(rendition, "Pets")
    assert [chunk.symbol for chunk in chunks] == ["GET /pets", "GET /pets/{id}", None]
    assert [chunk.start_line for chunk in chunks] == [1, 4, 7]


def test_rows_of_a_table_carry_its_columns_in_the_header() -> None:
    """A chunk that does not contain the header row has it in its own header."""
    rows = [f"| {number} | {SENTENCE.strip()} |" for number in range(12)]
    rendition = Rendition(
        lines=["## Costs", "", "| Item | Text |", "| --- | --- |", *rows],
        sections=[Section(0, 1, "Costs", "Costs > Item | Text")],
        places=[
            Place(),
            *(Place(fragment=f"Costs!A{number}:B{number}") for number in range(2, 14)),
        ],
        place_of=[0, 0, 0, 0, *range(1, 13)],
    )
    first, *others = cut(rendition, "Budget")
    assert first.header == "Budget"
    assert len(others) > 1
    assert {chunk.header for chunk in others} == {"Budget > Costs > Item | Text"}
    assert others[-1].locator is not None
    assert others[-1].locator["fragment"].endswith(":B13")
    assert {chunk.heading_path for chunk in others} == {("Costs",)}


def test_a_turn_that_begins_a_chunk_is_led_in_by_the_turn_before() -> None:
    """The lead stands for the turn before; a part of a long turn has its speaker instead."""
    turns = ["**Ana**: " + SENTENCE * 3, "**Ben**: " + SENTENCE * 9, "**Ana**: " + SENTENCE * 3]
    lines = ["# Mill", *turns]
    rendition = Rendition(
        lines=lines,
        sections=[
            Section(0, 1, "Mill", alone=True),
            Section(1, 2, "Ana"),
            Section(2, 2, "Ben", lead="… Ana: the gate opens"),
            Section(3, 2, "Ana", lead="… Ben: it holds"),
        ],
    )
    chunks = cut(rendition)
    by_line = {line: [c.header for c in chunks if c.start_line == line] for line in (1, 3, 4)}
    assert by_line[1] == [""]
    assert by_line[3][0] == "Mill > … Ana: the gate opens"
    assert set(by_line[3][1:]) == {"Mill > Ben"}
    assert by_line[4] == ["Mill > … Ben: it holds"]


def test_a_given_title_replaces_the_extracted_one() -> None:
    rendition = Rendition([SENTENCE] * 9, sections=[Section(0, 1, "Gates")], title="Extracted")
    assert cut(rendition)[-1].header == "Extracted > Gates"
    assert cut(rendition, "Given")[-1].header == "Given > Gates"


def test_there_is_a_document_for_every_extractor() -> None:
    """The documents of the next test have all kinds that are extracted."""
    kinds = {detect(name, None, raw).kind for name, raw in DOCUMENTS.items()}
    assert kinds == set(EXTRACTORS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_line_of_a_document_has_a_place_and_a_chunk(name: str) -> None:
    """Each place has lines, in the order of the original, and chunks cover them in order."""
    raw = DOCUMENTS[name]
    rendition = extract(detect(name, None, raw).kind, raw)
    assert_well_formed(rendition)
    filled = [row for row, line in enumerate(rendition.lines) if line.strip()]
    assert {rendition.place_of[row] for row in filled} == set(range(len(rendition.places)))
    places = [rendition.places[rendition.place_of[row]] for row in filled]
    pages = [place.page for place in places if place.page is not None]
    assert pages == sorted(pages)
    lines = [place.lines for place in places if place.lines is not None]
    assert all(1 <= first <= last <= raw.count(b"\n") + 1 for first, last in lines)
    assert [first for first, _ in lines] == sorted(first for first, _ in lines)
    by_line = dict(zip((row + 1 for row in filled), places, strict=True))
    for chunk in cut(rendition, rendition.title):
        rows = range(chunk.start_line, chunk.end_line + 1)
        locator = {
            key: value
            for key, value in (chunk.locator or {}).items()
            if key not in ("opening", "closing")  # of a part of a fence or a table
        }
        assert (locator or None) == locator_of([by_line[row] for row in rows if row in by_line])
