"""Markdown of the elements of a page."""

from __future__ import annotations

import pytest

from content.extractors.html import extract
from tests.support.renditions import fragments


def _lines(body: str) -> tuple[str, ...]:
    return tuple(extract(f"<main>{body}</main>".encode()).lines)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("<p>one\n two</p><p>three</p>", ("one two", "", "three")),
        ("<p>one<br>two</p>", ("one", "two")),
        ("<p>see <a href='x'>the <b>manual</b></a>.</p>", ("see the manual.",)),
        ("<p><code>a  b</code> and <code>`</code></p>", ("`a b` and `",)),
        ("<p>a<img alt='A plot'>b<img alt='x'></p>", ("a[A plot]b",)),
        ("<p># no heading</p>", ("\\# no heading",)),
        ("<h2>Name <a href='#n'>¶</a></h2>", ("## Name",)),
        ("<h2>Name<a href='#n'>\u200b</a></h2>", ("## Name",)),
        ("<ul><li>a<ul><li>b</ul><li><p>c</p><p>d</p></ul>", ("- a", "  - b", "- c", "", "  d")),
        ("<ol start=3><li>a<li>b</ol><p>c", ("3. a", "4. b", "", "c")),
        ("<ul><li><h3>Card</h3><p>text</p></ul>", ("### Card", "", "text")),
        ("<blockquote><p>a</p><p>b</p></blockquote>", ("> a", "", "> b")),
        ("<dl><dt>term<dd>meaning</dl>", ("term", "", "meaning")),
        ("<p>a<script>b</script><style>c</style><template>d</template></p>", ("a",)),
        ("<p>a <math alttext='x^2'><mi>x</mi></math></p>", ("a $x^2$",)),
        ("text<div>block</div>tail", ("text", "", "block", "", "tail")),
        ("<a><div>block</div></a>", ("block",)),
    ],
)
def test_markdown(body: str, lines: tuple[str, ...]) -> None:
    assert _lines(body) == lines


def test_code_is_verbatim() -> None:
    body = "<pre class='x'>\n  if a &lt; b:\n\n\tpass  <b>c</b>\n</pre>"
    assert _lines(body) == ("```", "  if a < b:", "", "\tpass  c", "```")


def test_code_in_a_list_has_no_indent() -> None:
    assert _lines("<ul><li>a<pre>  b</pre></ul>") == ("- a", "", "```", "  b", "```")


@pytest.mark.parametrize(
    "markup",
    [
        "<pre><code class='language-rust'>x</code></pre>",
        "<div class='highlight-rust notranslate'><div class='highlight'><pre>x</pre></div></div>",
        "<pre class='brush: rust'>x</pre>",
        "<div class='highlight highlight-source-rust'><pre>x</pre></div>",
        "<pre data-lang='rust'>x</pre>",
    ],
)
def test_the_language_of_code(markup: str) -> None:
    assert _lines(markup) == ("```rust", "x", "```")


def test_line_breaks_in_code_are_kept() -> None:
    assert _lines("<pre>a<br>b</pre>") == ("```", "a", "b", "```")


def test_a_fence_is_longer_than_those_in_the_code() -> None:
    assert _lines("<pre>```\nx\n```</pre>") == ("````", "```", "x", "```", "````")


def test_numbers_of_code_lines_are_left_out() -> None:
    body = "<table><tr><td class=linenos><pre>1</pre><td><pre>x</pre></table>"
    assert _lines(body) == ("```", "x", "```")


@pytest.mark.parametrize(
    "heading",
    [
        "<h2 id=here>Name</h2>",
        "<h2><a id=here></a>Name</h2>",
        "<h2><a name=here>Name</a></h2>",
        "<section id=here><h2>Name</h2></section>",
        "<div id=here><div><div><h2>Name</h2></div></div></div>",
        "<a id=here></a><h2>Name</h2>",
        "<dl><dt id=here>Name</dl>",
    ],
)
def test_the_place_is_the_id_of_the_heading_above(heading: str) -> None:
    page = f"<main><p>before</p>{heading}<p>text</p><h3>No id</h3><p>last</p></main>"
    places = fragments(extract(page.encode()))
    assert places["before"] == ""
    assert places["text"] == "here"
    assert places["last"] == "here"


def test_a_heading_of_a_note_begins_no_section() -> None:
    page = "<main><h2>Part</h2><div class=note><h3>Note</h3><p>a</p></div><p>b</p></main>"
    rendition = extract(page.encode())
    assert "### Note" in rendition.lines
    assert [section.name for section in rendition.sections] == ["Part"]
