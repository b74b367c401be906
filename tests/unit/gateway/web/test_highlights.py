from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from gateway.web.highlights import best_window, highlighted, word_spans

_TAG = re.compile(r"</?(?:span|mark)(?: class=\"t\w\")?>")


@settings(deadline=None)  # the first use of a lexer imports it
@given(
    text=st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc"]) | st.just("\n")),
    uri=st.sampled_from(["a.py", "a.md", "a.json", "a.unknown", "a.html", "a"]),
    kind=st.sampled_from(["code", "markdown", "text"]),
    spans=st.lists(st.tuples(st.integers(-5, 200), st.integers(-5, 200)), max_size=4),
)
def test_html_is_the_escaped_text_with_only_our_tags(
    text: str, uri: str, kind: str, spans: list[tuple[int, int]]
) -> None:
    lines = highlighted(text, uri, kind, spans=spans)
    plain = [_TAG.sub("", str(line.html)) for line in lines]
    safe = text.translate(dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD))
    assert plain == [str(escape(line)) for line in safe.split("\n")]


def test_lines_are_numbered_from_the_first() -> None:
    lines = highlighted("a\n\nb\r\nc", "x.txt", "text", first=41)
    assert [(line.number, str(line.html)) for line in lines] == [
        (41, "a"),
        (42, ""),
        (43, "b"),
        (44, "c"),
    ]


def test_marks_inside_of_colours() -> None:
    [line] = highlighted("return 1", "x.py", "code", spans=[(0, 6)])
    assert str(line.html) == '<span class="tk"><mark>return</mark></span> <span class="tn">1</span>'


@pytest.mark.parametrize(
    ("question", "content", "marked"),
    [
        ("retries", "It will retry: retried, Retry", ["retry", "retried", "Retry"]),
        ("connectTimeout", "connect_timeout = CONNECT", ["connect", "timeout", "CONNECT"]),
        ("what is the lag", "The lag is what it is", ["lag"]),
        ("", "anything", []),
    ],
)
def test_word_spans(question: str, content: str, marked: list[str]) -> None:
    assert [content[start:end] for start, end in word_spans(content, question)] == marked


def test_best_window_has_most_marks() -> None:
    content = "\n".join("hit" if number in (30, 32) else "miss" for number in range(50))
    assert best_window(content, word_spans(content, "hit"), 3) == range(30, 33)
    assert best_window(content, [], 3) == range(3)
    assert best_window("a\nhit", word_spans("a\nhit", "hit"), 3) == range(2)


def test_control_characters_are_visible() -> None:
    [line] = highlighted("a\x1b[2J\u202eb", "x.txt", "text")
    assert str(line.html) == "a␛[2J�b"
