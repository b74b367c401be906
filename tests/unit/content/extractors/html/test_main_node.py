"""Choice of the main part of a page."""

from __future__ import annotations

import pytest

from content.extractors.html import extract

_TEXT = "<p>" + "The text of the page says what it is about. " * 8 + "</p>"
_LINKS = "<ul>" + "<li><a href=x>Another page</a></li>" * 10 + "</ul>"


def _text(body: str, head: str = "") -> str:
    return "\n".join(extract(f"<html><head>{head}</head><body>{body}</body>".encode()).lines)


@pytest.mark.parametrize(
    "main",
    [
        f"<main>{_TEXT}</main>",
        f"<div role=main>{_TEXT}</div>",
        f"<article>{_TEXT}</article>",
        f"<div id=content>{_TEXT}</div>",
        f"<div class=markdown-body>{_TEXT}</div>",
    ],
)
def test_the_marked_element_is_read_alone(main: str) -> None:
    text = _text(f"<div>before</div>{main}<div>after</div>")
    assert text.startswith("The text of the page")
    assert "before" not in text
    assert "after" not in text


def test_a_marked_element_with_little_of_the_text_is_not_the_main_one() -> None:
    assert "The text of the page" in _text(f"<div id=content>a box</div><div>{_TEXT * 3}</div>")


def test_a_short_main_element_beside_much_navigation_is_read_alone() -> None:
    assert "Another page" not in _text(f"<div>{_LINKS * 30}</div><main>{_TEXT}</main>")


def test_scripts_do_not_count_as_text() -> None:
    script = f"<script>{'x' * 10_000}</script>"
    assert "before" not in _text(f"<div>before</div><div id=content>{_TEXT}</div>{script}")


def test_all_of_several_articles_are_read() -> None:
    articles = "".join(
        f"<article>{name} {_TEXT}</article>" for name in ("first", "second", "third")
    )
    text = _text(articles)
    assert all(name in text for name in ("first", "second", "third"))


@pytest.mark.parametrize(
    "around",
    [
        f"<nav>{_LINKS}</nav>",
        "<header>Another page</header>",
        "<footer>Another page</footer>",
        "<aside>Another page</aside>",
        "<form>Another page</form>",
        "<div aria-hidden=true>Another page</div>",
        _LINKS,
        "<div class='social-share'>Another page</div>",
        "<div id=comments>Another page</div>",
    ],
)
def test_what_stands_around_the_text_is_left_out(around: str) -> None:
    text = _text(f"{_TEXT}{around}{_TEXT}")
    assert "Another page" not in text
    assert text.count("The text of the page says") == 16


def test_an_aside_that_is_a_note_is_read() -> None:
    assert "mind this" in _text(f"<main>{_TEXT}<aside class='admonition'>mind this</aside></main>")


def test_a_form_around_the_page_is_read() -> None:
    assert "The text" in _text(f"<form>{_TEXT}</form>")


def test_links_in_a_main_element_are_read() -> None:
    assert "Another page" in _text(f"<main>{_TEXT}{_LINKS}</main>")


_OTHER_TYPE = "<meta property='og:type' content='website'>"
_WIDE = "\U0001f600" * 80  # nearly as long as a declaration may be


@pytest.mark.parametrize(
    "head",
    [
        "<meta property='og:type' content='article'>",
        f"{_OTHER_TYPE}<META PROPERTY='OG:TYPE' CONTENT='ARTICLE'>",
        f"<meta name='{_WIDE}' property='og:type' content='article'>",
        f"{_OTHER_TYPE * 60}<meta property='article:published_time' content='2026'>",
        '<script type="application/ld+json">{"@type": "BlogPosting"}</script>',
        "<i itemtype='https://schema.org/NewsArticle'></i>",
    ],
)
def test_a_declared_article_loses_its_boxes_of_links(head: str) -> None:
    box = f"<div><h3>More news</h3>{_LINKS}</div>"
    text = _text(f"<main>{_TEXT}{box}</main>", head)
    assert "Another page" not in text
    assert "More news" not in text


def test_a_page_that_declares_no_article_keeps_its_sections_of_links() -> None:
    box = f"<div><h3>More news</h3>{_LINKS}</div>"
    assert "More news" in _text(f"<main>{_TEXT}{box}</main>", _OTHER_TYPE)


def test_a_section_that_is_only_named_like_advertising_is_read() -> None:
    section = (
        "<div id=subscription><h2>Subscription</h2><p>How to subscribe to a channel.</p></div>"
    )
    assert "How to subscribe" in _text(f"{_TEXT}{section}{_TEXT}")


def test_the_heading_before_the_main_element_is_read() -> None:
    header = "<div id=header><h1>git-add(1)</h1><h2>NAME</h2><p>git-add - Add</p></div>"
    page = f"{header}<div id=content>{_TEXT}</div>"
    text = _text(page, "<title>git-add(1)</title>")
    assert text.startswith("# git-add(1)\n\n## NAME\n\ngit-add - Add\n\nThe text")


def test_a_heading_that_names_the_site_is_not_read() -> None:
    page = f"<div><h1>My Site</h1></div><main><h2>Page</h2>{_TEXT}</main>"
    assert _text(page, "<title>Page</title>").startswith("## Page")
