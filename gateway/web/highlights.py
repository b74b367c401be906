"""Texts as lines of HTML: syntax in colour, matched words marked, everything escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, String
from pygments.util import ClassNotFound

from store.search.keyword.tokenizer import EXACT, terms

__all__ = ["Line", "best_window", "highlighted", "word_spans"]

Span = tuple[int, int]

_LARGEST_COLOURED = 60_000
"""Characters; a longer text is shown without colours, because lexers take long for it."""

_LARGEST_KEPT = 8_000
"""Characters of a text whose colours are kept for the next page."""

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_CLASSES: Sequence[tuple[Any, str]] = (
    (Comment, "tc"),
    (Keyword, "tk"),
    (String, "ts"),
    (Number, "tn"),
    (Name.Function, "tf"),
    (Name.Class, "tf"),
    (Name.Decorator, "tf"),
    (Name.Tag, "tk"),
    (Name.Attribute, "tf"),
    (Generic.Heading, "th"),
    (Generic.Subheading, "th"),
    (Generic.Strong, "tb"),
    (Generic.Emph, "te"),
)
_LEXER_OF_KIND = {"markdown": "markdown", "rst": "rst", "conversation": "markdown"}
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
}
"""Visible forms of control characters, and of those that reverse the direction of a text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text as HTML."""

    number: int
    html: Markup


def highlighted(
    content: str, uri: str, kind: str, *, first: int = 1, spans: Iterable[Span] = ()
) -> list[Line]:
    """Return the lines of a text, numbered from ``first``.

    Args:
        content: the text.
        uri: its name, which decides the language.
        kind: its kind, which decides the language if the name does not.
        first: number of the first line.
        spans: ranges of characters to mark, as (start, end); they may overlap.
    """
    lines: list[Line] = []
    parts: list[str] = []
    colours = _colours(content, uri.rpartition("/")[2], kind)
    for text, css, marked in _segments(content, colours, spans):
        *ended, rest = text.split("\n")
        for piece in ended:
            parts.append(_html(piece.removesuffix("\r"), css, marked=marked))
            lines.append(Line(first + len(lines), _line(parts)))
            parts = []
        parts.append(_html(rest, css, marked=marked))
    lines.append(Line(first + len(lines), _line(parts)))
    return lines


def best_window(content: str, spans: Iterable[Span], size: int) -> range:
    """Indexes of ``size`` neighbouring lines in which most marks begin.

    They are all lines if there are fewer, and the first of several such windows.
    """
    count = content.count("\n") + 1
    marks = [0] * count
    line = before = 0
    for start, _ in _disjoint(spans, len(content)):
        line += content.count("\n", before, start)
        before = start
        marks[line] += 1
    starts = range(max(1, count - size + 1))
    best = max(starts, key=lambda at: (sum(marks[at : at + size]), -at))
    return range(best, min(best + size, count))


def word_spans(content: str, question: str) -> list[Span]:
    """Ranges of the parts of words that share a stem with a word of the question."""
    wanted = {term for term in terms(question) if not term.startswith(EXACT)}
    if not wanted:
        return []
    return [
        (word.start() + part.start(), word.start() + part.end())
        for word in _WORD.finditer(content)
        for part in _PART.finditer(word[0])
        if not wanted.isdisjoint(terms(part[0]))
    ]


def _line(parts: Sequence[str]) -> Markup:
    return Markup("".join(parts))  # noqa: S704 - every part is escaped


def _html(text: str, css: str, *, marked: bool) -> str:
    """Escaped text, in the elements of its mark and its colour."""
    if not text:
        return ""
    html = str(escape(text.translate(_CONTROLS)))
    if marked:
        html = f"<mark>{html}</mark>"
    return f'<span class="{css}">{html}</span>' if css else html


def _segments(
    content: str, tokens: Sequence[tuple[int, str]], spans: Iterable[Span]
) -> Iterator[tuple[str, str, bool]]:
    """Yield pieces of one colour and mark: text, class, marked."""
    colours = dict(tokens)
    ranges = _disjoint(spans, len(content))
    edges = {start for start, _ in ranges} | {end for _, end in ranges}
    begins = {start for start, _ in ranges}
    css, marked = "", False
    points = sorted({0, *colours, *edges})
    for start, end in zip(points, [*points[1:], len(content)], strict=True):
        css = colours.get(start, css)
        if start in edges:
            marked = start in begins
        if start < end:
            yield content[start:end], css, marked


def _disjoint(spans: Iterable[Span], length: int) -> list[Span]:
    """Join overlapping ranges, and drop empty ones and parts outside of the text."""
    joined: list[Span] = []
    for start, end in sorted((max(0, start), min(end, length)) for start, end in spans):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _colours(content: str, name: str, kind: str) -> Sequence[tuple[int, str]]:
    """Start and class of each run of one class."""
    if len(content) > _LARGEST_COLOURED:
        return ()
    return (_kept if len(content) <= _LARGEST_KEPT else _tokens)(content, name, kind)


def _tokens(content: str, name: str, kind: str) -> Sequence[tuple[int, str]]:
    lexer = _lexer(name, kind)
    runs: list[tuple[int, str]] = []
    last = ""
    for start, token, text in () if lexer is None else lexer.get_tokens_unprocessed(content):
        css = _class_of(token)
        if css != last and text:
            runs.append((start, css))
            last = css
    return runs


_kept = lru_cache(maxsize=512)(_tokens)
"""While a question is typed, most of its answers have the same chunks."""


@lru_cache(maxsize=256)
def _class_of(token: Any) -> str:
    return next((css for parent, css in _CLASSES if token in parent), "")


@lru_cache(maxsize=512)
def _lexer(name: str, kind: str) -> Lexer | None:
    """Lexer of a file's name, or of its kind. Returns None for plain text."""
    if kind in _LEXER_OF_KIND:
        return get_lexer_by_name(_LEXER_OF_KIND[kind])
    if kind == "text":
        return None
    try:
        lexer = find_lexer_class_for_filename(name[-200:])
    except (ClassNotFound, ValueError):
        return None
    return None if lexer is None else lexer()
