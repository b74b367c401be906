"""Extraction of pages: limits, character sets, titles, real pages."""

from __future__ import annotations

import pytest

from content.extractors.html import extract
from runtime.errors import Damaged, LimitExceeded
from tests.support.renditions import (
    DATA,
    assert_well_formed,
    assert_withstands_damage,
    fragments,
)


def test_a_page_of_sphinx_keeps_its_terms_and_loses_its_navigation() -> None:
    rendition = extract((DATA / "html/python-bisect.html").read_bytes())
    assert_well_formed(rendition)
    assert rendition.title == "bisect — Array bisection algorithm"
    places = fragments(rendition)
    term = "bisect.insort_left(a, x, lo=0, hi=len(a), *, key=None)"
    assert places[term] == "bisect.insort_left"
    text = "\n".join(rendition.lines)
    assert not any(noise in text for noise in ("Previous topic", "Report a Bug", "Quick search"))
    assert not any("¶" in line for line in rendition.lines)
    assert [section.name for section in rendition.sections] == [
        "bisect — Array bisection algorithm",
        "Performance Notes",
        "Searching Sorted Lists",
        "Examples",
    ]


def test_a_page_of_docbook_keeps_its_code_and_headings() -> None:
    rendition = extract((DATA / "html/pg-sql-vacuum.html").read_bytes())
    assert_well_formed(rendition)
    assert "    FULL [ boolean ]" in rendition.lines
    names = [section.name for section in rendition.sections]
    assert names[:3] == ["VACUUM", "Synopsis", "Description"]
    assert names[-1] == "See Also"


def test_a_page_of_a_blog_is_read_without_its_surroundings() -> None:
    rendition = extract((DATA / "html/markitdown-blog.html").read_bytes())
    assert_well_formed(rendition)
    assert rendition.sections[1].name.startswith("Experiment Setup")
    assert "Recent posts" not in rendition.lines


@pytest.mark.parametrize(
    ("raw", "text", "warned"),
    [
        ("<p>naïve</p>".encode(), "naïve", False),
        ("\ufeff<p>naïve</p>".encode("utf-16-le"), "naïve", False),
        ("<meta charset=iso-8859-2><p>žluť</p>".encode("iso8859-2"), "žluť", False),
        ("<meta charset='shift_jis'><p>日本語</p>".encode("cp932"), "日本語", False),
        (b"<p>na\xefve</p>", "naïve", True),
        (b"<meta charset=utf-8><p>na\xefve</p>", "na\ufffdve", True),
        (b"<meta charset=unicode_escape><p>a\\u0041</p>", "a\\u0041", False),
    ],
)
def test_character_sets(raw: bytes, text: str, warned: bool) -> None:
    rendition = extract(raw)
    assert rendition.lines == (text,)
    assert bool(rendition.warnings) == warned


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title>Vacuum - The Manual</title>", "Vacuum"),
        (
            "<title>The Manual | Vacuum</title><meta property=og:site_name content='The Manual'>",
            "Vacuum",
        ),
        ("<title>Re-use of code</title>", "Re-use of code"),
        ("", None),
    ],
)
def test_the_title_of_a_page_without_a_first_heading(head: str, title: str | None) -> None:
    assert extract(f"<head>{head}</head><p>text</p>".encode()).title == title


def test_the_first_heading_is_the_title() -> None:
    assert extract(b"<title>a - b</title><main><h1>Vacuum</h1><p>text</p></main>").title == "Vacuum"


def test_an_empty_page_gives_no_lines() -> None:
    rendition = extract(b"")
    assert rendition.lines == ()
    assert rendition.title is None


def test_a_page_that_a_script_fills_has_a_warning() -> None:
    warnings = extract(b"<div id=app></div><script>start()</script>").warnings
    assert any("script" in warning for warning in warnings)


def test_bytes_that_are_no_text_are_damage() -> None:
    with pytest.raises(Damaged):
        extract(b"<p>" + bytes(1_000))


def test_too_many_elements_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="250,000 elements"):
        extract(b"<p>" * 600_000)


@pytest.mark.parametrize("tag", [b"<div>", b"<b>", b"<b><p>", b"<table><td>", b"<a href=#>"])
def test_deep_nesting_is_read_or_refused(tag: bytes) -> None:
    assert extract(tag * 10_000 + b"text").lines
    with pytest.raises(LimitExceeded, match="nothing closes"):
        extract(tag * 100_000 + b"text")


def test_a_deep_page_is_read_below_its_limit_of_depth() -> None:
    rendition = extract(b"<div>" * 1_500 + b"<ul><li>deep <b>text</b></ul>")
    assert rendition.lines == ("deep text",)


def test_xhtml_with_closed_elements_is_read() -> None:
    page = b"<html><head><title/></head><body><a id='x'/><p>text</p></body></html>"
    assert extract(b"<?xml version='1.0'?>" + page).lines == ("text",)


def test_damaged_pages_are_extracted_or_refused() -> None:
    documents = [(DATA / "html/pg-sql-vacuum.html").read_bytes(), b"<table><td colspan=9>x" * 40]
    assert_withstands_damage(extract, documents, 60)
