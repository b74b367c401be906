"""Real files, with the outcomes that the corpus of development expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from content.extractors.pdf import extract
from runtime.errors import Encrypted, NoTextLayer

FILES = Path(__file__).parents[4] / "data" / "content" / "pdf"


def read(name: str) -> bytes:
    return (FILES / f"{name}.pdf").read_bytes()


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_prose_is_read() -> None:
    lines = extract(read("minimal-document")).lines

    assert any("Lorem ipsum dolor sit amet" in line for line in lines)


def test_headings_are_those_of_the_outline() -> None:
    result = extract(read("pdflatex-outline"))

    names = [section.name for section in result.sections]
    assert names[:4] == ["Contents", "1 Foo", "2 Bar", "3 Baz"]
    assert not any(line.startswith("|") for line in result.lines)
    assert {place.page for place in result.places} == {1, 2, 3, 4}


def test_a_table_with_rulings_at_every_fifth_row_keeps_its_rows() -> None:
    lines = extract(read("background-checks")).lines

    rows = {cells_of(line)[0]: cells_of(line) for line in lines if line.startswith("|")}
    alabama, wyoming = rows["Alabama"], rows["Wyoming"]
    assert (len(alabama), alabama[1:3], alabama[-1]) == (25, ["18,870", "23,022"], "71,137")
    assert (wyoming[1], wyoming[-1]) == ("383", "5,017")
    assert sum(line.startswith("| ---") for line in lines) == 1


def test_a_table_of_numbers_is_read() -> None:
    lines = extract(read("all-number-table")).lines

    assert "| 200.01 | 1 |" in lines
    assert "| 1600.01 | 15 |" in lines


def test_an_attachment_gives_a_warning() -> None:
    assert extract(read("with-attachment")).warnings == ('1 attachment is not read: "image.png"',)


def test_a_password_is_refused() -> None:
    with pytest.raises(Encrypted) as refusal:
        extract(read("libreoffice-writer-password"))

    assert refusal.value.remedy == "save it without a password"


def test_a_scan_is_refused() -> None:
    with pytest.raises(NoTextLayer, match="any of its 6 pages"):
        extract(read("imagemagick-images"))
