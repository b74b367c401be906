"""Extraction of books."""

from __future__ import annotations

import io
import zipfile

import pytest

from content.extractors.book import extract
from runtime.errors import Damaged, Encrypted
from tests.support.renditions import (
    DATA,
    assert_well_formed,
    assert_withstands_damage,
    fragments,
)

_CONTAINER = (
    '<container><rootfiles><rootfile full-path="EPUB/content.opf"/></rootfiles></container>'
)
_NAV = "application/xhtml+xml"


def _book(chapters: dict[str, str], contents: str = "", **members: str) -> bytes:
    """Book of chapters by file name; ``contents`` is the inner list of its navigation."""
    items = "".join(
        f'<item id="c{number}" href="{name}" media-type="{_NAV}"/>'
        for number, name in enumerate(chapters)
    )
    references = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    package = (
        '<package xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>The Book</dc:title><dc:creator>Ana</dc:creator></metadata><manifest>"
        f'<item id="nav" href="nav.xhtml" media-type="{_NAV}" properties="nav"/>{items}'
        f'</manifest><spine><itemref idref="nav"/>{references}</spine></package>'
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", _CONTAINER)
        archive.writestr("EPUB/content.opf", package)
        archive.writestr(
            "EPUB/nav.xhtml", f'<html><body><nav type="toc">{contents}</nav></body></html>'
        )
        for name, body in chapters.items():
            archive.writestr(
                f"EPUB/{name}", f"<?xml version='1.0'?><html><body>{body}</body></html>"
            )
        for name, content in members.items():
            archive.writestr(f"META-INF/{name}.xml", content)
    return buffer.getvalue()


def test_chapters_are_in_the_order_of_the_spine() -> None:
    rendition = extract(
        _book({"b.xhtml": "<h1 id='x'>First</h1><p>one</p>", "a.xhtml": "<p>two</p>"})
    )
    assert_well_formed(rendition)
    assert [line for line in rendition.lines if line] == ["By Ana", "# First", "one", "two"]
    places = fragments(rendition)
    assert places["one"] == "b.xhtml#x"
    assert places["two"] == "a.xhtml"
    assert rendition.title == "The Book"


def test_headings_are_shifted_under_the_table_of_contents() -> None:
    contents = (
        "<ol><li><a href='part.xhtml'>Part I</a><ol>"
        "<li><a href='one.xhtml'>Chapter 1</a></li><li><a href='two.xhtml#a'>2 The Sea</a></li>"
        "</ol></li></ol>"
    )
    chapters = {
        "part.xhtml": "<p>Part I</p>",
        "one.xhtml": "<h1>A Subtitle</h1><p>text</p>",
        "two.xhtml": "<h1>The Sea</h1><h2>Waves</h2>",
        "three.xhtml": "<h2>Tides</h2>",
    }
    sections = extract(_book(chapters, contents)).sections
    assert [(section.level, section.name) for section in sections] == [
        (1, "Part I"),
        (2, "Chapter 1"),
        (3, "A Subtitle"),
        (2, "The Sea"),
        (3, "Waves"),
        (3, "Tides"),
    ]


def test_encrypted_chapters_are_refused() -> None:
    encryption = '<encryption><CipherReference URI="EPUB/a.xhtml"/></encryption>'
    with pytest.raises(Encrypted, match="protected"):
        extract(_book({"a.xhtml": "<p>x</p>"}, encryption=encryption))


def test_encrypted_fonts_do_not_matter() -> None:
    encryption = '<encryption><CipherReference URI="EPUB/font.otf"/></encryption>'
    assert "text" in extract(_book({"a.xhtml": "<p>text</p>"}, encryption=encryption)).lines


def test_a_missing_chapter_is_a_warning() -> None:
    raw = _book({"a.xhtml": "<p>text</p>"}).replace(b"EPUB/a.xhtml", b"EPUB/z.xhtml")
    rendition = extract(raw)
    assert rendition.warnings == ("a chapter that the book lists is missing",)


def test_another_archive_is_damage() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(Damaged):
        extract(buffer.getvalue())


def test_a_real_book_is_extracted() -> None:
    rendition = extract((DATA / "book/markitdown-test.epub").read_bytes())
    assert_well_formed(rendition)
    assert rendition.title == "Test EPUB Document"
    assert [section.name for section in rendition.sections] == [
        "Chapter 1: Test Content",
        "Chapter 2: More Content",
    ]


def test_damaged_books_are_extracted_or_refused() -> None:
    documents = [
        _book({"a.xhtml": "<p>a</p>"}, "<ol><li><a href='a.xhtml'>A</a></li></ol>"),
        (DATA / "book/markitdown-test.epub").read_bytes(),
    ]
    assert_withstands_damage(extract, documents, 150)
